"""Trains token prediction: losses as sums and weights, gradients added over micro-batches, one
update.

Functions are pure and work on one device's part of a batch. Micro-batches and devices add sums
(`TokenSums`, and the gradient of the summed loss), and the total is divided once by the weights'
sum. So the result does not depend on how a batch is divided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from motif_jax.core.training import block_stack, spread
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


class TokenSums(NamedTuple):
    """Sums over tokens, micro-batches and devices; float32 scalars."""

    loss: jax.Array  # cross-entropy in nats, times the weights
    weight: jax.Array  # of the targets
    correct: jax.Array  # weight of the targets that are the most likely token
    counted: jax.Array | None = None  # the denominator of `correct`; None: `weight`


class LanguageTrainState(NamedTuple):
    """The state that a step changes; parameters are float32, `step` is int32, the steps taken."""

    params: Any
    opt_state: Any
    step: Any


# (trained parameters, frozen parameters, batch, dropout key or None) -> sums
SumsOf = Callable[[Any, Any, TokenBatch, Any], TokenSums]
# (state, frozen parameters, micro-batches) -> (state, metrics)
TokenUpdate = Callable[
    [LanguageTrainState, Any, TokenBatch], tuple[LanguageTrainState, dict[str, jax.Array]]
]


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
) -> TokenSums:
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
    return TokenSums(
        loss=-(log_probs * flat_weights).sum(),
        weight=flat_weights.sum(),
        correct=(correct * flat_weights).sum(),
    )


def gradient_sums(
    sums_of: Callable[[Any, Any, Any, Any], Any],
    params: Any,
    frozen: Any,
    batches: Any,
    key: Any = None,
) -> tuple[Any, Any]:
    """The gradient of the summed loss of all micro-batches, and their sums.

    Args:
      sums_of: of one micro-batch, such as a `SumsOf`; sums have a `loss`, and `spread.added` adds
          them.
      batches: leaves [A, B, ...], A micro-batches, run one after the other in the memory of one.
      key: of dropout, folded for each micro-batch; None: no dropout.
    """

    def loss(params: Any, batch: Any, number: Any) -> tuple[jax.Array, Any]:
        # By the micro-batch's number, so that no two of a step have the same masks.
        batch_key = None if key is None else jax.random.fold_in(key, number)
        sums = sums_of(params, frozen, batch, batch_key)
        return sums.loss, sums

    gradient = jax.grad(loss, has_aux=True)
    count = jax.tree.leaves(batches)[0].shape[0]
    first = jax.tree.map(lambda leaf: leaf[0], batches)
    if count == 1:
        return gradient(params, first, 0)

    def add(total: Any, micro_batch: tuple[Any, jax.Array]) -> tuple[Any, None]:
        batch, number = micro_batch
        return spread.added(total, gradient(params, batch, number)), None

    # The first one is in the loop too: outside, it would double the program.
    zeros = spread.nothing(jax.eval_shape(gradient, params, first, 0))
    total, _ = jax.lax.scan(add, zeros, (batches, jnp.arange(count)))
    return total


def make_update(
    sums_of: SumsOf,
    optimizer: optax.GradientTransformation,
    reduce: Callable[[Any], Any],
    key_of: Callable[[jax.Array], Any] | None = None,
) -> TokenUpdate:
    """Makes the step of one device with its part of a batch.

    Args:
      optimizer: receives the gradient of the mean loss a token.
      reduce: adds a tree over devices: `psum` under pmap or shard_map, the identity under jit over
          sharded arrays.
      key_of: (step) -> dropout key, different on each device; None: no dropout.

    Returns:
      `update(state, frozen, batches) -> (state, metrics)`; for `batches` see `gradient_sums`.
      Metrics: the mean `loss` a token, `accuracy`, the sum of the weights (`tokens`),
      `gradient_norm` before any clip.
    """

    def update(
        state: LanguageTrainState, frozen: Any, batches: TokenBatch
    ) -> tuple[LanguageTrainState, dict[str, jax.Array]]:
        key = None if key_of is None else key_of(state.step)
        # Outermost, so that gradients and moments are stacked too, and the optimiser's program is
        # as short as the blocks'.
        state, frozen = block_stack.stacked_for_loop((state, frozen))
        # Sums over micro-batches, then over devices; the division below is the only one.
        gradient, sums = reduce(gradient_sums(sums_of, state.params, frozen, batches, key))

        # A batch without targets has weight 0.
        weight = jnp.maximum(sums.weight, 1e-9)
        counted = weight
        if sums.counted is not None:
            counted = jnp.maximum(sums.counted, 1e-9)
        gradient = jax.tree.map(lambda leaf: leaf / weight, gradient)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = {
            "loss": sums.loss / weight,
            "accuracy": sums.correct / counted,
            "tokens": sums.weight,
            # Of the mean gradient, before the optimiser clips it.
            "gradient_norm": optax.tree.norm(gradient),
        }
        new_state = LanguageTrainState(params, opt_state, state.step + 1)
        return block_stack.unstacked(new_state), metrics

    return update
