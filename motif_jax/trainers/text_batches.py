"""Batches of tokens by the number of a step: windows or items, made into what is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.datasets.tokens.dataset import TokensDataset
from motif_jax.datasets.tokens.order import TokenWindows, gather
from motif_jax.language import objectives
from motif_jax.language.objectives import Tokens
from motif_jax.language.tokens import bucket
from motif_jax.language.training import TokenBatch
from motif_jax.support import seeds
from motif_jax.support.errors import UserError
from motif_jax.trainers.bucket_batches import BucketBatches, stacked


def refuse_prompts(packing: str, where: str | Path) -> None:
    """Refuses texts with prompts that are to be laid end to end: a window says nothing of where one begins and ends, and all of it is learned.

    Raises:
      UserError: `packing` is 'windows'; names what has the prompts.
    """
    if packing == "windows":
        raise UserError(
            f"config.packing=windows: must be 'items' (of a T5 with config.objective=prefix): {where} has prompts, and a window would learn "
            "them with the texts"
        )


def check_prompts(packing: str, dataset: TokensDataset) -> None:
    """Raises UserError where items of tokens have prompts for which `packing` has no place."""
    if np.any(dataset.item_columns.get("prompt", 0)):
        refuse_prompts(packing, dataset.folder)


class TextRows(NamedTuple):
    """What a row is.

    Attributes:
      objective: what is predicted, see `objectives`.
      packing: 'windows' of `length` tokens out of items laid end to end, or 'items', each a row of its own.
      length: tokens that a row has at most.
      tokens: special ones.
    """

    objective: str
    packing: str
    length: int
    tokens: Tokens

    def batch(
        self, rows: objectives.ObjectiveRows, widths: tuple[int, int], rng: np.random.Generator
    ) -> TokenBatch:
        """What is to be predicted of rows; `widths` are those of prompts and rests where an encoder reads the prompt."""
        if self.objective == "causal":
            return objectives.causal(rows)
        if self.objective == "masked":
            return objectives.masked(rows, self.tokens, rng)
        if self.objective == "spans":
            return objectives.spans(rows.tokens, self.tokens, rng)
        return objectives.prefix(rows, widths, self.tokens, rng)


class WindowBatches:
    """Windows of a dataset whose items are laid end to end.

    Args:
      seed: of the order and of whatever is random.

    Raises:
      UserError: a text shorter than a window, or prompts.
    """

    def __init__(self, dataset: TokensDataset, rows: TextRows, batch_size: int, seed: int) -> None:
        check_prompts(rows.packing, dataset)
        self._dataset, self._rows, self._batch_size, self._seed = dataset, rows, batch_size, seed
        length = rows.length
        width = {"causal": length + 1, "masked": length - 1, "prefix": length}.get(rows.objective)
        self.width = width or objectives.span_window(length)
        self._order = TokenWindows(dataset.num_tokens, self.width, batch_size, seed)
        if not self._order.per_pass:
            raise UserError(
                f"{dataset.folder} has {dataset.num_tokens:,} tokens, fewer than the {self.width:,} of a window: more text or a "
                f"smaller config.length than {length} is needed"
            )
        self.steps_per_pass = -(-self._order.per_pass // batch_size)

    def batches(self, first: int, count: int) -> TokenBatch:
        steps = range(first, first + count)
        return stacked([self._batch(self._order.gather(self._dataset.tokens, step), step) for step in steps])

    def _batch(self, tokens: np.ndarray, step: int) -> TokenBatch:
        rows = objectives.ObjectiveRows(tokens, np.ones(tokens.shape, bool), np.zeros(len(tokens), np.int64))
        return self._rows.batch(rows, objectives.prefix_widths(self.width), _noise(self._seed, step))

    def whole(self, most: int) -> list[TokenBatch]:
        """All of the dataset, in at most `most` batches [batch_size, ...], the last filled up with rows that count nothing."""
        size, found, rows = self._batch_size, [], self._order.per_pass
        for number in range(min(most, -(-rows // size))):
            places = np.arange(number * size, (number + 1) * size)
            there = places < rows
            starts = np.where(there, places, 0) * self.width
            tokens = self._dataset.tokens[starts[:, None] + np.arange(self.width)].astype(np.int32)
            batch = self._batch(tokens, number)
            found.append(batch._replace(weights=batch.weights * there[:, None]))
        return found


class ItemBatches(BucketBatches):
    """Items of a dataset, each a row of its own with its prompt; arguments as `WindowBatches`, and `group` of `BucketBatches`."""

    def __init__(
        self, dataset: TokensDataset, rows: TextRows, batch_size: int, seed: int, group: int
    ) -> None:
        super().__init__(dataset, dataset.lengths, rows.length, batch_size, seed, group)
        self._rows, self._seed, self._prompts = rows, seed, np.asarray(dataset.item_columns["prompt"])

    def steps(self, items: Sequence[np.ndarray], width: int, first: int) -> TokenBatch:
        rows = [
            objectives.ObjectiveRows(
                *gather(self.dataset, part, width, self._rows.tokens.pad),
                np.where(part >= 0, self._prompts[part], 0),
            )
            for part in items
        ]
        widths = _prompt_widths(rows)
        return stacked(
            [self._rows.batch(row, widths, _noise(self._seed, step)) for step, row in enumerate(rows, first)]
        )


def _noise(seed: int, step: int) -> np.random.Generator:
    return seeds.rng(seed, "noise", step)


def _prompt_widths(rows: list[objectives.ObjectiveRows]) -> tuple[int, int]:
    """Of prompts and rests before and behind an encoder: of few sizes, so that few programs are compiled."""
    width = rows[0].tokens.shape[1]
    prompts = np.concatenate([row.prompt for row in rows])
    rests = np.concatenate([row.valid.sum(axis=1) for row in rows]) - prompts
    if not prompts.all():
        return width, width
    return bucket(int(prompts.max()), width), bucket(int(rests.max()), width)
