"""Batches of tokens by the number of a step: windows or items, made into what is predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.datasets.tokens.dataset import TokensDataset
from motif_jax.datasets.tokens.order import Buckets, TokenWindows, gather
from motif_jax.language import objectives
from motif_jax.language.objectives import Tokens
from motif_jax.language.tokens import bucket
from motif_jax.language.training import TokenBatch
from motif_jax.support import seeds
from motif_jax.support.errors import UserError
from motif_jax.trainers.held_out import by_length


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


class TextBatches:
    """The batches of one dataset.

    Args:
      dataset: of tokens.
      rows: what a row is.
      batch_size: rows of a step.
      seed: of the order and of whatever is random.
      group: steps in a row that have rows of one width.

    Raises:
      UserError: a text shorter than a window, prompts where rows are windows, or a length that holds no row.
    """

    def __init__(
        self,
        dataset: TokensDataset,
        rows: TextRows,
        batch_size: int,
        seed: int,
        group: int = 1,
    ) -> None:
        objective, packing, length, tokens = rows
        self.batch_size, self._dataset, self._objective, self._seed = batch_size, dataset, objective, seed
        self._tokens, self._windows = tokens, packing == "windows"
        if self._windows:
            check_prompts(packing, dataset)
            self.width = {"causal": length + 1, "masked": length - 1, "prefix": length}.get(objective) or (
                objectives.span_window(length)
            )
            self._order = TokenWindows(dataset.num_tokens, self.width, batch_size, seed)
            if not self._order.per_pass:
                raise UserError(
                    f"{dataset.folder} has {dataset.num_tokens:,} tokens, fewer than the {self.width:,} of a window: more text or a "
                    f"smaller config.length than {length} is needed"
                )
            self.steps_per_pass = -(-self._order.per_pass // batch_size)
        else:
            widths = list(dict.fromkeys(bucket(size, length) for size in range(1, length + 1)))
            self._buckets = Buckets(dataset.lengths, widths, batch_size, seed, group)
            self._prompts, self.steps_per_pass = (
                np.asarray(dataset.item_columns["prompt"]),
                self._buckets.steps_per_pass,
            )

    def batches(self, first: int, count: int) -> TokenBatch:
        """The batches of steps `first` to `first + count`: leaves [count, batch_size, ...]."""
        steps = range(first, first + count)
        if self._windows:
            return _stacked(
                [self._of_windows(self._order.gather(self._dataset.tokens, step), step) for step in steps]
            )
        rows = [self._buckets.rows(step) for step in steps]
        return self._of_items([row.items for row in rows], max(row.width for row in rows), first)

    def _rng(self, step: int) -> np.random.Generator:
        return seeds.rng(self._seed, "noise", step)

    def _of_windows(self, tokens: np.ndarray, step: int) -> TokenBatch:
        rows = objectives.ObjectiveRows(tokens, np.ones(tokens.shape, bool), np.zeros(len(tokens), np.int64))
        if self._objective == "spans":
            return objectives.spans(tokens, self._tokens, self._rng(step))
        return self._of_rows(rows, objectives.prefix_widths(self.width), step)

    def _of_items(self, items: list[np.ndarray], width: int, first: int) -> TokenBatch:
        pad, found = self._tokens.pad, []
        prompts = [np.where(part >= 0, self._prompts[part], 0) for part in items]
        rows = [
            objectives.ObjectiveRows(*gather(self._dataset, part, width, pad), p)
            for part, p in zip(items, prompts, strict=True)
        ]
        widths = self._widths(rows)
        for step, row in enumerate(rows, start=first):
            found.append(self._of_rows(row, widths, step))
        return _stacked(found)

    def _widths(self, rows: list[objectives.ObjectiveRows]) -> tuple[int, int]:
        """Of prompts and rests before and behind an encoder: of few sizes, so that few programs are compiled."""
        width = rows[0].tokens.shape[1]
        prompts = np.concatenate([row.prompt for row in rows])
        rests = np.concatenate([row.valid.sum(axis=1) for row in rows]) - prompts
        if not prompts.all():
            return width, width
        return bucket(int(prompts.max()), width), bucket(int(rests.max()), width)

    def _of_rows(self, rows: objectives.ObjectiveRows, widths: tuple[int, int], step: int) -> TokenBatch:
        if self._objective == "causal":
            return objectives.causal(rows)
        if self._objective == "masked":
            return objectives.masked(rows, self._tokens, self._rng(step))
        return objectives.prefix(rows, widths, self._tokens, self._rng(step))

    def whole(self, most: int) -> list[TokenBatch]:
        """All of the dataset, in at most `most` batches [batch_size, ...], the last filled up with rows that count nothing."""
        size, lengths = self.batch_size, self._dataset.lengths
        if not self._windows:
            return [
                _first(self._of_items([items], bucket(int(lengths[items[items >= 0]].max())), number))
                for number, items in enumerate(by_length(lengths, size, most))
            ]
        found, rows = [], self._order.per_pass
        for number in range(min(most, -(-rows // size))):
            places = np.arange(number * size, (number + 1) * size)
            there = places < rows
            starts = np.where(there, places, 0) * self.width
            tokens = self._dataset.tokens[starts[:, None] + np.arange(self.width)].astype(np.int32)
            batch = self._of_windows(tokens, number)
            found.append(batch._replace(weights=batch.weights * there[:, None]))
        return found


def _first(batch: TokenBatch) -> TokenBatch:
    return TokenBatch(*(None if leaf is None else leaf[0] for leaf in batch))


def _stacked(batches: list[TokenBatch]) -> TokenBatch:
    fields: list[Any] = [
        None if leaves[0] is None else np.stack(leaves) for leaves in zip(*batches, strict=True)
    ]
    return TokenBatch(*fields)
