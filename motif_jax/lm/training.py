"""The loss of predicted tokens, as sums: rows of tokens, the states behind them, and the
cross-entropy of their targets.

Functions are pure and work on one device's part of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.core.training.gradient_sums import Sums
from motif_jax.lm.generation import token_log_probs
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.scoring import in_chunks


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


def states_of(model: LanguageModel, params: Any, batch: TokenBatch) -> jax.Array:
    """The states [B, S, D] after the last norm that predict `batch.targets`."""
    chex.assert_rank([batch.tokens, batch.valid], 2)
    if not model.config.encoder_layers:
        states, _ = model.prefill(params, batch.tokens, batch.valid)
        return states.after
    # An encoder and its decoder: two runs with the same stacks.
    params = model.prepared(params)
    _, prompt = model.prefill(params, batch.prompt, batch.prompt_valid)
    states, _ = model.extend(params, prompt, batch.tokens[:, None], batch.valid[:, None])
    return states.after[:, 0]


def token_sums(
    logits_of: Callable[[jax.Array], jax.Array],
    states: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    chunk: int | None = None,
) -> Sums:
    """Cross-entropy of targets int32 [B, S] after states [B, S, D], computed in float32 with
    weights [B, S].

    `chunk` tokens' logits, by `logits_of`, are in memory at once, see `scoring.in_chunks`; None:
    all.
    """
    chex.assert_equal_shape([targets, weights])
    chex.assert_equal_shape_prefix([states, targets], 2)

    def measure(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        row_states, row_targets = rows
        logits = logits_of(row_states)
        log_probs = token_log_probs(logits, row_targets)
        correct = jnp.argmax(logits, axis=-1) == row_targets
        return log_probs, correct

    flat_weights = weights.reshape(-1)
    rows = (states.reshape(flat_weights.size, states.shape[-1]), targets.reshape(-1))
    log_probs, correct = in_chunks(measure, rows, chunk)
    return Sums(
        loss=-(log_probs * flat_weights).sum(),
        weight=flat_weights.sum(),
        correct=(correct * flat_weights).sum(),
    )
