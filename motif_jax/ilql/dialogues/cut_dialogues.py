"""Counts the dialogues that the limit of tokens cuts so short that nothing is learned from them,
and says so in one line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.dialogues import token_columns
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.dialogues.items import TokenItem
from motif_jax.lm.token_data import TokensDataset


class CutDialogues(NamedTuple):
    """Numbers of dialogues."""

    total: int = 0
    unused: int = 0  # cut before their first action: nothing is learned from them
    shortened: int = 0  # cut after it: their later actions are lost
    silent: int = 0  # without an action


def count(items: Iterable[TokenItem], layout: ItemLayout) -> CutDialogues:
    """Counts items before they are cut."""
    counts = [(_actions(item, layout), _actions(layout.cut(item), layout)) for item in items]
    return CutDialogues(
        total=len(counts),
        unused=sum(after_cut == 0 < before for before, after_cut in counts),
        shortened=sum(0 < after_cut < before for before, after_cut in counts),
        silent=sum(before == 0 for before, _ in counts),
    )


def count_chosen(dataset: TokensDataset, chosen: np.ndarray, layout: ItemLayout) -> CutDialogues:
    """Counts the items `chosen` int64 [N] of a dataset of tokens; reads those alone that are longer
    than the limit.
    """
    kinds = np.asarray(dataset.token_columns["kinds"])
    acting = np.r_[0, np.cumsum(kinds > 0)]
    # Tokens of actions, which are counted without reading an item.
    actions = acting[dataset.offsets[1:]] - acting[dataset.offsets[:-1]]
    silent = int((actions[chosen] == 0).sum())
    long = (
        np.zeros(0, np.int64)
        if layout.max_len is None
        else chosen[dataset.lengths[chosen] > layout.max_len]
    )
    counts = count((token_columns.item_of(dataset, int(index)) for index in long), layout)
    return counts._replace(total=len(chosen), silent=silent)


def _actions(item: TokenItem, layout: ItemLayout) -> int:
    return len(item.utterance_action_indices if layout.by_utterance else item.action_indices)


def _begins(layout: ItemLayout) -> str:
    """Where the part of a dialogue begins that something is learned from: an action that is cut off
    counts by tokens.
    """
    return "the state after their first action" if layout.by_utterance else "their first action"


def say(config: TextConfig, layout: ItemLayout, counts: CutDialogues, source: str) -> None:
    """Prints a line on stderr about dialogues that are not used, or not as a whole; `source` names
    the data.
    """
    parts = []
    if counts.unused:
        parts.append(
            f"{counts.unused:,} of {counts.total:,} dialogues are cut before {_begins(layout)} and teach nothing"
        )
    if counts.shortened:
        parts.append(
            f"{counts.shortened:,} of {counts.total:,} dialogues are cut and lose later actions"
        )
    if parts:
        limit = f"the model's {layout.max_len} positions (config.network.max_length)"
        if config.max_len == layout.max_len:
            limit = f"config.max_len={layout.max_len}"
        parts[-1] += f": {limit}"
    if counts.silent:
        parts.append(
            f"{counts.silent:,} of {counts.total:,} dialogues have no action and teach nothing"
        )
    if parts:
        print(f"note: {source}: {'; '.join(parts)}", file=sys.stderr, flush=True)
