"""What a run says before its first update, which takes minutes where a language model is the agent."""

from __future__ import annotations

from motif_jax.glam.config import LanguagePolicy
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.training import Beginning


def said_before_the_first_update(config: AgentConfig) -> list[str]:
    said: list[str] = []
    begins = Beginning(config, said.append)
    begins.read_model()
    begins.compile()
    begins.play(0)
    begins.play(7)  # too soon for another line
    begins.learn()
    begins.play(0)
    return said


def test_a_language_agent_says_what_takes_so_long() -> None:
    said = said_before_the_first_update(AgentConfig(network=LanguagePolicy(model="google/flan-t5-small")))
    assert [line.split()[0] for line in said] == ["reading", "compiling", "playing:", "the"]
    assert said[0].endswith("google/flan-t5-small")


def test_other_agents_begin_without_words() -> None:
    assert said_before_the_first_update(AgentConfig()) == []
