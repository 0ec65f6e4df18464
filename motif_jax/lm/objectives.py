"""Makes training batches (numpy) from rows of tokens.

* causal: predict the next token; prompt tokens are no targets.
* masked (Devlin et al. 2019, without the next sentence; Liu et al. 2019): predict 15 % of the tokens, of which 80 % are masked, 10 %
  replaced and 10 % kept; prompt tokens are no targets.
* spans (Raffel et al. 2020, section 3.1.4): sentinels replace spans of 3 tokens on average, 15 % in all, in the encoder's input; the
  decoder predicts each sentinel and its span.
* prefix: the encoder reads the prompt, or a part of random length; the decoder predicts the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.lm.training import TokenBatch

OF = {
    "gpt2": ("causal",),
    "llama": ("causal",),
    "qwen2": ("causal",),
    "qwen3": ("causal",),
    "gemma3_text": ("causal",),
    "roberta": ("masked",),
    "t5": ("spans", "prefix"),
}
NOISE, SPAN = 0.15, 3.0


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
    """Rows of tokens int32 [B, S], padded on the right where `valid` is False, and the lengths [B] of their prompts."""

    tokens: np.ndarray
    valid: np.ndarray
    prompt: np.ndarray


def causal(rows: ObjectiveRows) -> TokenBatch:
    """Predicts every token except a row's first and its prompt."""
    targets, there = rows.tokens[:, 1:], rows.valid[:, 1:]
    weights = there & (np.arange(1, rows.tokens.shape[1]) >= rows.prompt[:, None])
    return TokenBatch(rows.tokens[:, :-1], rows.valid[:, :-1], targets, weights.astype(np.float32))


def masked(rows: ObjectiveRows, tokens: Tokens, rng: np.random.Generator) -> TokenBatch:
    """Predicts a share of the tokens behind prompts, at least one of each row; puts a start token in front of every row."""
    first = np.full((len(rows.tokens), 1), tokens.start, np.int32)
    targets = np.concatenate([first, rows.tokens], axis=1)
    valid = np.concatenate([rows.valid.any(axis=1, keepdims=True), rows.valid], axis=1)
    choosable = valid & ~np.isin(targets, (tokens.start, tokens.end, tokens.pad))
    choosable &= np.arange(targets.shape[1]) > rows.prompt[:, None]
    draws = np.where(choosable, rng.random(targets.shape), 2.0)
    chosen = (draws < NOISE) | ((draws == draws.min(axis=1, keepdims=True)) & choosable)
    kind, others = rng.random(targets.shape), rng.integers(0, tokens.size, targets.shape, dtype=np.int32)
    inputs = np.where(chosen & (kind < 0.8), np.int32(tokens.mask), targets)
    inputs = np.where(chosen & (kind >= 0.9), others, inputs)
    return TokenBatch(inputs, valid, targets, chosen.astype(np.float32))


def span_counts(length: int) -> tuple[int, int]:
    """The number of noise tokens among `length`, and of their spans."""
    noise = min(max(round(length * NOISE), 1), length - 1)
    return noise, max(1, min(round(noise / SPAN), length - noise))


def span_window(length: int) -> int:
    """Length of the longest text whose encoder input has at most `length` tokens, sentinels and end included.

    Raises:
      UserError: no text fits.
    """
    counts = {size: span_counts(size) for size in range(2, 2 * length)}
    fits = [size for size, (noise, spans) in counts.items() if size - noise + spans + 1 <= length]
    if not fits:
        raise UserError(f"config.length={length}: must be at least 3, to hold a span")
    return fits[-1]


def spans(rows: np.ndarray, tokens: Tokens, rng: np.random.Generator) -> TokenBatch:
    """Replaces spans of rows int32 [B, S] without padding; all inputs have one length, and all targets another."""
    noise, count = span_counts(rows.shape[1])
    if count > len(tokens.sentinels):
        raise UserError(
            f"rows of {rows.shape[1]} tokens have {count} spans, the tokenizer has {len(tokens.sentinels)} sentinels: a smaller "
            "config.length is needed"
        )
    inputs, targets = [], []
    for row in rows:
        kept, lost = _parts(rows.shape[1] - noise, count, rng), _parts(noise, count, rng)
        ends = np.cumsum(np.stack([kept, lost], axis=1).reshape(-1))
        parts, read, written = np.split(row, ends[:-1]), [], []
        for sentinel, here, gone in zip(tokens.sentinels, parts[0::2], parts[1::2]):
            read += [here, [sentinel]]
            written += [[sentinel], gone]
        inputs.append(np.concatenate([*read, [tokens.end]]))
        targets.append(np.concatenate([*written, [tokens.end]]))
    read_rows, found = np.asarray(inputs, np.int32), np.asarray(targets, np.int32)
    return _sequence(read_rows, np.ones(read_rows.shape, bool), found, np.ones(found.shape, bool), tokens)


def _parts(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Divides `total` into `count` random integers of at least 1."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def prefix(
    rows: ObjectiveRows, widths: tuple[int, int], tokens: Tokens, rng: np.random.Generator
) -> TokenBatch:
    """Predicts each row after its prompt; a row without a prompt is divided at a random place from a quarter to three quarters.

    `widths` are the padded lengths of prompts and targets.
    """
    length = rows.valid.sum(axis=1)
    some = rng.integers(length // 4, np.maximum(length - length // 4, length // 4 + 1))
    cut = np.where(rows.prompt > 0, rows.prompt, some)
    inside = [np.arange(width) for width in widths]
    read = inside[0] < cut[:, None]
    wrote = inside[1] < (length - cut)[:, None]
    most = rows.tokens.shape[1] - 1
    behind = np.minimum(cut[:, None] + inside[1], most)
    prompt = np.where(read, rows.tokens[:, np.minimum(inside[0], most)], np.int32(tokens.pad))
    # An encoder needs at least one token to attend to.
    read[:, 0] = True
    rest = np.where(wrote, np.take_along_axis(rows.tokens, behind, axis=1), np.int32(tokens.pad))
    return _sequence(prompt, read, rest, wrote, tokens)


def prefix_widths(length: int) -> tuple[int, int]:
    """Widths that are enough in `prefix` for rows of `length` tokens without prompts."""
    return length - length // 4, length - length // 4


def _sequence(
    read: np.ndarray, good: np.ndarray, targets: np.ndarray, there: np.ndarray, tokens: Tokens
) -> TokenBatch:
    first = np.full((len(targets), 1), tokens.start, np.int32)
    before = np.concatenate([first, targets[:, :-1]], axis=1)
    valid = np.concatenate([np.ones_like(there[:, :1]), there[:, :-1]], axis=1)
    return TokenBatch(before, valid, targets, there.astype(np.float32), read, good)
