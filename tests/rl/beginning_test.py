"""The lines that a run prints before its first update, which takes minutes where a language model
is the agent.
"""

from __future__ import annotations

from motif_jax.glam.config import LanguagePolicy
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.training import StartMessages


def lines_before_the_first_update(config: AgentConfig) -> list[str]:
    lines: list[str] = []
    messages = StartMessages(config, lines.append)
    messages.read_model()
    messages.compile()
    messages.play(0)
    messages.play(7)  # too soon for another line
    messages.learn()
    messages.play(0)
    return lines


def test_a_language_agents_start_is_printed_step_by_step() -> None:
    config = AgentConfig(network=LanguagePolicy(model="google/flan-t5-small"))
    lines = lines_before_the_first_update(config)
    assert [line.split()[0] for line in lines] == [
        "reading",
        "prompts:",
        "compiling",
        "playing:",
        "the",
    ]
    assert lines[0].endswith("google/flan-t5-small")


def test_other_agents_print_nothing_at_the_start() -> None:
    assert lines_before_the_first_update(AgentConfig()) == []
