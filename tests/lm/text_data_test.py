"""Dialogues become tokens whose actions are those by which an agent chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.ilql.dialogues import dialogue, dialogue_files
from motif_jax.lm import text_data
from motif_jax.lm.tokens import Tokenizer, candidate_rows
from motif_jax.lm.training_config import LanguageModelConfig
from motif_jax.schema import read_section
from tests import chat_families
from tests.lm.pretraining import config_of


@pytest.mark.parametrize("phrases", [False, True])
def test_actions_of_dialogues_are_tokenised_as_an_agent_chooses_them(
    tmp_path: Path, phrases: bool
) -> None:
    """A model that learned a token across the end of an action would never have learned to say the
    action alone.
    """
    goal = "Goal: go to the red ball \n Action 0: "
    reply = " \n Observation 1: You see a wall 2 steps forward, "
    rewards = (None, 0.0, None, 1.0)
    actions = np.random.default_rng(0).choice(ACTIONS, 200).tolist()
    games = [dialogue.Dialogue((goal, action, reply, action), rewards, True) for action in actions]
    dialogue_files.write(tmp_path / "dialogues.parquet", [dialogue.Dialogues.of(games)], {})
    changes = {
        "model.architecture": "t5",
        "tokenizer.vocab_size": 600,
        "tokenizer.phrases": phrases,
        "packing": "items",
    }
    config = read_section(LanguageModelConfig, config_of(tmp_path / "dialogues.parquet", **changes))
    folder = text_data.make_tokenizer(config, "t5", tmp_path / "tokenizer")
    tokenizer = Tokenizer.read(folder)

    data = text_data.prepare(
        config, tmp_path / "run", folder, 1, None, lambda: False, whole_prompts=True
    )

    assert data is not None
    train = data["train"]
    [reply_tokens] = tokenizer.encode([reply], special=False)
    action_tokens = set()
    for item, prompt in enumerate(train.item_columns["prompt"]):
        target = train.item(item)[prompt:].tolist()
        assert target.pop() == 1
        # The first action of a game has a reply behind it, the last one none.
        if target[-len(reply_tokens) :] == reply_tokens:
            target = target[: -len(reply_tokens)]
        action_tokens.add(tuple(target))
    assert action_tokens == {tuple(row) for row in candidate_rows(tokenizer, ACTIONS)}


@pytest.mark.parametrize("packing", ["items", "windows"])
def test_a_decoders_items_begin_as_its_prompts_do(tmp_path: Path, packing: str) -> None:
    """With the token that the tokenizer puts in front of a text, which is never learned: its
    prompts are read so later.
    """
    folder = chat_families.write(
        tmp_path / "tokenizer", chat_families.FAMILIES["headers"], adds_bos=True
    )
    (tmp_path / "texts.txt").write_text("\n\n".join(["one two three"] * 200))
    changes = {"model.architecture": "llama", "packing": packing}
    config = read_section(LanguageModelConfig, config_of(tmp_path / "texts.txt", **changes))

    data = text_data.prepare(config, tmp_path / "run", folder, 1, None, lambda: False, begins=True)

    assert data is not None
    [prompt] = Tokenizer.read(folder).encode(["one"])
    begin = Tokenizer.read(folder).beginning()
    assert len(begin) == 1
    assert data["train"].item(0)[: len(prompt)].tolist() == prompt
    assert not np.any(data["train"].item_columns["prompt"])
    assert (
        Tokenizer.read(
            chat_families.write(tmp_path / "b", chat_families.FAMILIES["chatml"])
        ).beginning()
        == []
    )
