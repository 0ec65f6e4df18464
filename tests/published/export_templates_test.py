"""Exports have a chat template that renders what the agent was trained on: the model's own, or that
of its delimiters.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from motif_jax import lm
from motif_jax.core import tokenizer_files
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.text_agent import Design
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import constant_reward, to_act, tokenise
from motif_jax.lm import chat_template
from tests import chat_families, text_agents
from tests.chat_families import FAMILIES
from tests.published.export_agent_test import exported_by, language_agent

pytestmark = pytest.mark.slow

TALK = Dialogue(("is it late?", "I look.", "and now?"), (None, 0.0, None), False)
AGAIN = Dialogue(("is it late?", "I look."), (None, 0.0), False)


def exported(folder: Path, family: str, turns: str) -> tuple[agent_folder.SavedAgent, Path]:
    """An agent of a chat model whose tokenizer begins texts, too, and its export."""
    chosen = FAMILIES[family]
    tokenizer = chat_families.write(folder / "tokens", chosen, adds_bos=bool(chosen.bos))
    options = {"tokenizer": str(tokenizer), "turns": turns}
    run = text_agents.write(folder / "run", Design(q="none"), "bc", "dialogues", options)
    return agent_folder.load(run), exported_by("text_agent", run, folder / "export")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("turns", ["own", "new"])
def test_an_exported_template_gives_the_tokens_of_training(
    tmp_path: Path, family: str, turns: str
) -> None:
    agent, model = exported(tmp_path, family, turns)

    template = chat_template.read(model)

    assert template is not None
    tokenizer = lm.load(str(model)).tokenizer
    for dialogue in (TALK, AGAIN):
        roles = ["user" if reward is None else "assistant" for reward in dialogue.rewards]
        messages = [
            {"role": role, "content": text}
            for role, text in zip(roles, dialogue.texts, strict=True)
        ]
        item = tokenise(dialogue, agent.tokenizer, constant_reward(0.0))
        tokens = [*item.tokens.tolist(), *to_act(dialogue, agent.tokenizer)]
        # As transformers tokenises a rendered template, and as whoever forgets that it has the
        # special tokens.
        for special in (False, True):
            assert tokenizer.encode([template.prompt(messages)], special) == [tokens]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_export_keeps_the_models_own_template(tmp_path: Path, family: str) -> None:
    _, model = exported(tmp_path, family, "own")

    assert (model / chat_template.TEMPLATE_FILE).read_text() == FAMILIES[family].template
    values = json.loads((model / tokenizer_files.CONFIG_FILE).read_text())
    assert values.get("bos_token", "") == FAMILIES[family].bos
    assert "chat template" in (model / "README.md").read_text()


def test_an_exported_language_agent_keeps_template_and_named_tokens(tmp_path: Path) -> None:
    run = language_agent(tmp_path, "gpt2", **{"network.chat": "never"})
    (tmp_path / "base" / chat_template.TEMPLATE_FILE).write_text(
        "{{ bos_token }}{{ messages[0]['content'] }}"
    )
    (tmp_path / "base" / tokenizer_files.CONFIG_FILE).write_text(json.dumps({"bos_token": "</s>"}))

    model = exported_by("language_agent", run, tmp_path / "export")

    template = chat_template.read(model)
    assert template is not None
    assert template.prompt([{"role": "user", "content": "go"}]) == "</s>go"
