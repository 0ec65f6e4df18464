"""Dialogues that the limit of tokens cuts are counted in one line before a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.ilql.config import HeldOutDialogues, TextConfig
from motif_jax.ilql.dialogues import dialogue_data, dialogue_files, dialogue_tokens
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.dialogues.dialogue_data import CutDialogues
from motif_jax.ilql.dialogues.dialogue_tokens import TokenItem, tokenise
from motif_jax.lm.token_data import TokensDataset
from tests.toy_text import Letters

SHORT = Dialogue(("ab", "c"), (None, 1.0), True)
LONG_STATE = Dialogue(("a" * 40, "c"), (None, 1.0), True)
LONG_ACTION = Dialogue(("ab", "c" * 40), (None, 1.0), True)
TWO_ACTIONS = Dialogue(("ab", "c", "a" * 40, "c"), (None, 1.0, None, 1.0), True)
SILENT = Dialogue(("ab",), (None,), True)
ALL = (SHORT, LONG_STATE, LONG_ACTION, TWO_ACTIONS, SILENT)


def plan(by_utterance: bool = False, max_len: int | None = 16) -> ItemLayout:
    return ItemLayout(Letters.delimiters.pad, by_utterance, max_len)


def items(*dialogues: Dialogue) -> list[TokenItem]:
    return [
        tokenise(dialogue, Letters(), dialogue_tokens.constant_reward(0.0))
        for dialogue in dialogues
    ]


@pytest.mark.parametrize(
    ("layout", "counts"),
    [
        (plan(), CutDialogues(5, unused=1, shortened=2, silent=1)),
        (plan(by_utterance=True), CutDialogues(5, unused=3, shortened=0, silent=1)),
        (plan(max_len=None), CutDialogues(5, unused=0, shortened=0, silent=1)),
    ],
)
def test_cut_dialogues_are_counted(layout: ItemLayout, counts: CutDialogues) -> None:
    assert dialogue_data.count_cut(items(*ALL), layout) == counts


def test_dataset_of_tokens_is_counted_as_its_items_are(tmp_path: Path) -> None:
    dialogue_files.write(tmp_path / "dialogues.parquet", [Dialogues.of(ALL * 4)], {})
    config = TextConfig(data=str(tmp_path), held_out=HeldOutDialogues(share=0.2))
    source: Any = dialogue_data.DialogueSource(
        "dialogues", {}, tmp_path / "dialogues.parquet", None
    )
    split = dialogue_data.split_tokens(
        config, source, Letters(), tmp_path / "tokens", lambda: False
    )
    assert split is not None
    counts = [
        np.array(dialogue_data.count_cut_of_dataset(part, np.arange(part.num_items), plan()))
        for part in split.values()
    ]
    assert isinstance(split["train"], TokensDataset)
    assert sum(counts).tolist() == [20, 4, 8, 4]
