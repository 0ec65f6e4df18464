"""Batches of a language model's training for each step, from windows or items of tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.lm import objectives
from motif_jax.lm.objectives import Tokens
from motif_jax.lm.token_batches import BucketBatches, TokenWindows, gather, stacked
from motif_jax.lm.token_data import TokensDataset
from motif_jax.lm.tokens import bucket
from motif_jax.lm.training import TokenBatch


def refuse_prompts(packing: str, where: str | Path) -> None:
    """Refuses texts with prompts, in `where`, for windows, which predict all tokens and do not know
    where a prompt ends.
    """
    if packing == "windows":
        raise UserError(
            f"config.packing=windows: must be 'items' (of a T5 with config.objective=prefix): {where} has prompts, and a window would learn "
            "them with the texts"
        )


def check_prompts(packing: str, dataset: TokensDataset) -> None:
    """Raises UserError where items have prompts, which `packing` does not allow."""
    if np.any(dataset.item_columns.get("prompt", 0)):
        refuse_prompts(packing, dataset.folder)


class TextRows(NamedTuple):
    """How rows are made."""

    objective: str  # see `objectives`
    # 'windows' of `length` tokens over items end to end, or 'items', each in a row of its own
    packing: str
    length: int  # most tokens of a row
    tokens: Tokens  # special tokens

    def batch(
        self, rows: objectives.ObjectiveRows, widths: tuple[int, int], rng: np.random.Generator
    ) -> TokenBatch:
        """Makes inputs and targets; `widths` are the padded lengths of prompts and targets for
        objective 'prefix'.
        """
        if self.objective == "causal":
            return objectives.causal(rows)
        if self.objective == "masked":
            return objectives.masked(rows, self.tokens, rng)
        if self.objective == "spans":
            return objectives.spans(rows.tokens, self.tokens, rng)
        return objectives.prefix(rows, widths, self.tokens, rng)


class WindowBatches:
    """Windows over a dataset's items end to end; UserError if it is shorter than a window, or has
    prompts.
    """

    def __init__(self, dataset: TokensDataset, rows: TextRows, batch_size: int, seed: int) -> None:
        check_prompts(rows.packing, dataset)
        self._dataset = dataset
        self._rows = rows
        self._batch_size = batch_size
        self._seed = seed
        self.width = _window_width(rows.objective, rows.length)
        self._order = TokenWindows(dataset.num_tokens, self.width, batch_size, seed)
        if not self._order.per_pass:
            raise UserError(
                f"{dataset.folder} has {dataset.num_tokens:,} tokens, fewer than the {self.width:,} of a window: more text or a "
                f"smaller config.length than {rows.length} is needed"
            )
        # No whole number: a batch may hold the last windows of a pass and the first of the next.
        self.steps_per_pass = self._order.per_pass / batch_size

    def batches(self, first: int, count: int) -> TokenBatch:
        batches = []
        for step in range(first, first + count):
            tokens = self._order.gather(self._dataset.tokens, step)
            batches.append(self._batch(tokens, step))
        return stacked(batches)

    def _batch(self, tokens: np.ndarray, step: int) -> TokenBatch:
        # Windows have no padding and no prompts.
        rows = objectives.ObjectiveRows(
            tokens, np.ones(tokens.shape, bool), np.zeros(len(tokens), np.int64)
        )
        return self._rows.batch(
            rows, objectives.prefix_widths(self.width), _noise_rng(self._seed, step)
        )

    def all_batches(self, max_batches: int) -> list[TokenBatch]:
        """The dataset in at most `max_batches` batches [batch_size, ...]; rows of weight 0 fill the
        last one.
        """
        size = self._batch_size
        batches = []
        for number in range(min(max_batches, math.ceil(self.steps_per_pass))):
            windows = np.arange(number * size, (number + 1) * size)
            exists = windows < self._order.per_pass
            # In order and from the first token: an evaluation has the same windows each time.
            starts = np.where(exists, windows, 0) * self.width
            tokens = self._dataset.tokens[starts[:, None] + np.arange(self.width)].astype(np.int32)
            # By its own number, so that a resumed run measures with the same masks and spans.
            batch = self._batch(tokens, number)
            batches.append(batch._replace(weights=batch.weights * exists[:, None]))
        return batches


def _window_width(objective: str, length: int) -> int:
    """Tokens of a window, from which an objective makes rows of at most `length` tokens."""
    if objective == "causal":
        # The inputs lack the last token, the targets the first.
        return length + 1
    if objective == "masked":
        # A start token is added.
        return length - 1
    if objective == "prefix":
        return length
    return objectives.span_window(length)


class ItemBatches(BucketBatches):
    """Items of a dataset, each with its prompt in a row of its own."""

    def __init__(
        self, dataset: TokensDataset, rows: TextRows, batch_size: int, seed: int, group: int
    ) -> None:
        super().__init__(dataset, dataset.lengths, rows.length, batch_size, seed, group)
        self._rows = rows
        self._seed = seed
        self._prompts = np.asarray(dataset.item_columns["prompt"])

    def steps(self, items: Sequence[np.ndarray], width: int, first: int) -> TokenBatch:
        step_rows = []
        for step_items in items:
            tokens, valid = gather(self.dataset, step_items, width, self._rows.tokens.pad)
            prompt = np.where(step_items >= 0, self._prompts[step_items], 0)
            step_rows.append(objectives.ObjectiveRows(tokens, valid, prompt))

        # One width for all steps of the chunk, which run in one program.
        widths = _prompt_widths(step_rows)
        batches = []
        for step, rows in enumerate(step_rows, first):
            batches.append(self._rows.batch(rows, widths, _noise_rng(self._seed, step)))
        return stacked(batches)


def _noise_rng(seed: int, step: int) -> np.random.Generator:
    return seeds.rng(seed, "noise", step)


def _prompt_widths(rows: list[objectives.ObjectiveRows]) -> tuple[int, int]:
    """Padded lengths of prompts and targets for objective 'prefix': few values, so that few
    programs are compiled.
    """
    width = rows[0].tokens.shape[1]
    prompts = np.concatenate([row.prompt for row in rows])
    targets = np.concatenate([row.valid.sum(axis=1) for row in rows]) - prompts
    if not prompts.all():
        # A row without a prompt is divided at random.
        return width, width
    return bucket(int(prompts.max()), width), bucket(int(targets.max()), width)
