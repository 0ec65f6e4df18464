"""Batches (numpy) of a language model's training for each step, from windows or items of tokens, by
an objective.

* causal: predict the next token; prompt tokens are not targets.
* masked (Devlin et al. 2019, without the next sentence; Liu et al. 2019): predict 15 % of the
  tokens, of which 80 % are masked, 10 % replaced and 10 % kept; prompt tokens are not targets.
* spans (Raffel et al. 2020, section 3.1.4): sentinels replace spans of 3 tokens on average, 15 % in
  all, in the encoder's input; the decoder predicts each sentinel and its span.
* prefix: the encoder reads the prompt, or a part of random length; the decoder predicts the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.lm.token_batches import BucketBatches, TokenWindows, gather, stacked
from motif_jax.lm.token_data import TokensDataset
from motif_jax.lm.tokens import bucket

# Architecture -> its objectives, the usual one first.
OBJECTIVES = {
    "gpt2": ("causal",),
    "llama": ("causal",),
    "qwen2": ("causal",),
    "qwen3": ("causal",),
    "gemma3_text": ("causal",),
    "roberta": ("masked",),
    "t5": ("spans", "prefix"),
}
# Share of the tokens that are masked or lie in spans, and the mean length of a span.
NOISE = 0.15
SPAN = 3.0


class TokenBatch(NamedTuple):
    """Rows of tokens and their targets; numpy or jax arrays.

    Attributes:
      tokens, valid: int32 and bool [..., B, S], the decoder's input, or the encoder's without a
          decoder.
      targets: int32 [..., B, S], the token to predict at each position.
      weights: float32 [..., B, S], of the targets; 0 where nothing is predicted.
      prompt, prompt_valid: int32 and bool [..., B, P], input of the encoder before a decoder; None
          without one.
    """

    tokens: Any
    valid: Any
    targets: Any
    weights: Any
    prompt: Any = None
    prompt_valid: Any = None


class Tokens(NamedTuple):
    """Special tokens by their numbers, and the vocabulary's size.

    Attributes:
      start: first token of a decoder, and of RoBERTa's rows.
      mask: -1 without one.
      sentinels: for spans, in the order of their use.
    """

    start: int
    end: int
    pad: int
    mask: int
    sentinels: tuple[int, ...]
    size: int


class ObjectiveRows(NamedTuple):
    """Rows of tokens int32 [B, S], padded on the right where `valid` is False, and the lengths [B]
    of their prompts.
    """

    tokens: np.ndarray
    valid: np.ndarray
    prompt: np.ndarray


def causal(rows: ObjectiveRows) -> TokenBatch:
    """Predicts every token except a row's first and its prompt."""
    targets = rows.tokens[:, 1:]
    # By the place of the target: the prompt's last token predicts the first of the text.
    after_prompt = np.arange(1, rows.tokens.shape[1]) >= rows.prompt[:, None]
    weights = rows.valid[:, 1:] & after_prompt
    return TokenBatch(rows.tokens[:, :-1], rows.valid[:, :-1], targets, weights.astype(np.float32))


def masked(rows: ObjectiveRows, tokens: Tokens, rng: np.random.Generator) -> TokenBatch:
    """Predicts a share of the tokens after prompts, at least one of each row; puts a start token in
    front of every row.
    """
    first = np.full((len(rows.tokens), 1), tokens.start, np.int32)
    targets = np.concatenate([first, rows.tokens], axis=1)
    # A row without any token gets no start token either.
    valid = np.concatenate([rows.valid.any(axis=1, keepdims=True), rows.valid], axis=1)

    eligible = valid & ~np.isin(targets, (tokens.start, tokens.end, tokens.pad))
    eligible &= np.arange(targets.shape[1]) > rows.prompt[:, None]
    # 2 is above every draw, so that these tokens are never chosen.
    draws = np.where(eligible, rng.random(targets.shape), 2.0)
    # A short row may have no draw below 15 %; the token of its lowest is predicted then.
    lowest = draws == draws.min(axis=1, keepdims=True)
    chosen = (draws < NOISE) | (lowest & eligible)

    kind = rng.random(targets.shape)
    random_tokens = rng.integers(0, tokens.size, targets.shape, dtype=np.int32)
    # Of the chosen ones .8 are masked, .1 stay as they are (from .8 to .9), .1 are another token.
    inputs = np.where(chosen & (kind < 0.8), np.int32(tokens.mask), targets)
    inputs = np.where(chosen & (kind >= 0.9), random_tokens, inputs)
    return TokenBatch(inputs, valid, targets, chosen.astype(np.float32))


def span_counts(length: int) -> tuple[int, int]:
    """The number of noise tokens among `length`, and of their spans."""
    noise = min(max(round(length * NOISE), 1), length - 1)
    return noise, max(1, min(round(noise / SPAN), length - noise))


def span_window(length: int) -> int:
    """Length of the longest text whose encoder input has at most `length` tokens, at least 3,
    sentinels and end included.
    """
    longest = 2
    # Sentinels stand for 3 tokens each: the input is about nine tenths of the text, and twice its
    # length is enough.
    for size in range(2, 2 * length):
        noise, count = span_counts(size)
        if size - noise + count + 1 <= length:
            longest = size
    return longest


def check_spans(length: int, sentinels: int) -> None:
    """Raises UserError where the windows of config.length have more spans than there are
    sentinels.
    """
    _, count = span_counts(span_window(length))
    allowed = f"less: a window has {count} spans, and there are {sentinels} sentinels"
    checks.require(count <= sentinels, "length", length, allowed)


def spans(rows: np.ndarray, tokens: Tokens, rng: np.random.Generator) -> TokenBatch:
    """Replaces spans of rows int32 [B, S] without padding; all inputs have one length, and all
    targets another.
    """
    noise, count = span_counts(rows.shape[1])
    # Lengths do not depend on the row (`span_counts`), so that rows stack without padding.
    prompts = []
    targets = []
    for row in rows:
        # Text and spans alternate; a row begins with text.
        text_lengths = _random_lengths(rows.shape[1] - noise, count, rng)
        span_lengths = _random_lengths(noise, count, rng)
        ends = np.cumsum(np.stack([text_lengths, span_lengths], axis=1).reshape(-1))
        pieces = np.split(row, ends[:-1])

        prompt = []
        target = []
        for sentinel, text, span in zip(
            tokens.sentinels[:count], pieces[0::2], pieces[1::2], strict=True
        ):
            # "a b [c] d [e]" gives "a b <0> d <1> <end>" and "<0> c <1> e <end>".
            prompt += [text, [sentinel]]
            target += [[sentinel], span]
        prompts.append(np.concatenate([*prompt, [tokens.end]]))
        targets.append(np.concatenate([*target, [tokens.end]]))

    prompt_rows = np.asarray(prompts, np.int32)
    target_rows = np.asarray(targets, np.int32)
    prompt_valid = np.ones(prompt_rows.shape, bool)
    target_valid = np.ones(target_rows.shape, bool)
    return _encoder_decoder_batch(prompt_rows, prompt_valid, target_rows, target_valid, tokens)


def _random_lengths(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Divides `total` into `count` random integers of at least 1."""
    # Different cuts between neighbours, so that no part is empty.
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def prefix(
    rows: ObjectiveRows, widths: tuple[int, int], tokens: Tokens, rng: np.random.Generator
) -> TokenBatch:
    """Predicts each row after its prompt; a row without a prompt is divided at random between a
    quarter and three quarters.

    `widths` are the padded lengths of prompts and targets.
    """
    length = rows.valid.sum(axis=1)
    # At least a quarter of the row on either side; the maximum keeps the range from being empty.
    random_cut = rng.integers(length // 4, np.maximum(length - length // 4, length // 4 + 1))
    cut = np.where(rows.prompt > 0, rows.prompt, random_cut)
    prompt_width, target_width = widths
    last = rows.tokens.shape[1] - 1

    prompt_index = np.arange(prompt_width)
    prompt_valid = prompt_index < cut[:, None]
    # Places past the array's end read its last token, which the next line pads.
    prompt = rows.tokens[:, np.minimum(prompt_index, last)]
    prompt = np.where(prompt_valid, prompt, np.int32(tokens.pad))
    # An encoder needs at least one token to attend to.
    prompt_valid[:, 0] = True

    target_index = np.arange(target_width)
    target_valid = target_index < (length - cut)[:, None]
    targets = np.take_along_axis(rows.tokens, np.minimum(cut[:, None] + target_index, last), axis=1)
    targets = np.where(target_valid, targets, np.int32(tokens.pad))
    return _encoder_decoder_batch(prompt, prompt_valid, targets, target_valid, tokens)


def prefix_widths(length: int) -> tuple[int, int]:
    """Widths that are enough in `prefix` for rows of `length` tokens without prompts."""
    three_quarters = length - length // 4
    return three_quarters, three_quarters


def _encoder_decoder_batch(
    prompt: np.ndarray,
    prompt_valid: np.ndarray,
    targets: np.ndarray,
    target_valid: np.ndarray,
    tokens: Tokens,
) -> TokenBatch:
    """The decoder reads the targets one step later, after its start token."""
    first = np.full((len(targets), 1), tokens.start, np.int32)
    inputs = np.concatenate([first, targets[:, :-1]], axis=1)
    valid = np.concatenate([np.ones_like(target_valid[:, :1]), target_valid[:, :-1]], axis=1)
    weights = target_valid.astype(np.float32)
    return TokenBatch(inputs, valid, targets, weights, prompt, prompt_valid)


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

    objective: str  # one of `OBJECTIVES`
    # 'windows' of `length` tokens over items end to end, or 'items', each in a row of its own
    packing: str
    length: int  # most tokens of a row
    tokens: Tokens  # special tokens

    def batch(
        self, rows: ObjectiveRows, widths: tuple[int, int], rng: np.random.Generator
    ) -> TokenBatch:
        """Makes inputs and targets; `widths` are the padded lengths of prompts and targets for
        objective 'prefix'.
        """
        if self.objective == "causal":
            return causal(rows)
        if self.objective == "masked":
            return masked(rows, self.tokens, rng)
        if self.objective == "spans":
            return spans(rows.tokens, self.tokens, rng)
        return prefix(rows, widths, self.tokens, rng)


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
        rows = ObjectiveRows(tokens, np.ones(tokens.shape, bool), np.zeros(len(tokens), np.int64))
        return self._rows.batch(rows, prefix_widths(self.width), _noise_rng(self._seed, step))

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
    return span_window(length)


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
            step_rows.append(ObjectiveRows(tokens, valid, prompt))

        # One width for all steps of the chunk, which run in one program.
        widths = _prompt_widths(step_rows)
        batches = []
        for step, rows in enumerate(step_rows, first):
            batches.append(self._rows.batch(rows, widths, _noise_rng(self._seed, step)))
        return stacked(batches)


def _noise_rng(seed: int, step: int) -> np.random.Generator:
    return seeds.rng(seed, "noise", step)


def _prompt_widths(rows: list[ObjectiveRows]) -> tuple[int, int]:
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
