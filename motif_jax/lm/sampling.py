"""Filters logits and draws tokens."""

from __future__ import annotations

import dataclasses

import chex
import jax
import jax.numpy as jnp

from motif_jax.core.errors import UserError

IMPOSSIBLE = -jnp.inf


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a token is drawn from logits; the filters apply in this order.

    Attributes:
      greedy: take the most likely token; the other fields are ignored.
      temperature: logits are divided by it.
      top_k: keep the k most likely tokens; 0 keeps all.
      top_p: keep the fewest most likely tokens whose probabilities sum to at least this; 1 keeps
          all.
    """

    greedy: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise UserError(
                f"temperature={self.temperature}: must be above 0 (greedy takes the most likely token)"
            )
        if self.top_k < 0:
            raise UserError(f"top_k={self.top_k}: must be at least 0, which keeps all tokens")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p={self.top_p}: must be above 0 and at most 1")


@dataclasses.dataclass(frozen=True)
class Limits:
    """Where a text ends; the tokens `stops` are part of it."""

    max_new_tokens: int
    stops: tuple[int, ...]


def filtered(logits: jax.Array, sampling: Sampling) -> jax.Array:
    """Logits float32 [..., V] divided by the temperature; -inf where top-k or top-p (Holtzman et
    al. 2020) drops a token.
    """
    logits = logits.astype(jnp.float32) / sampling.temperature
    size = logits.shape[-1]
    if 0 < sampling.top_k < size:
        largest, _ = jax.lax.top_k(logits, sampling.top_k)
        # Tokens as likely as the k-th stay, so that there may be more than k.
        threshold = largest[..., -1:]
        logits = jnp.where(logits < threshold, IMPOSSIBLE, logits)
    if sampling.top_p < 1:
        ordered = jnp.sort(logits, axis=-1, descending=True)
        probabilities = jax.nn.softmax(ordered, axis=-1)
        # A token is needed where those before it sum to less than top_p; the first always is.
        needed = jnp.cumsum(probabilities, axis=-1) - probabilities < sampling.top_p
        threshold = jnp.min(jnp.where(needed, ordered, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(logits < threshold, IMPOSSIBLE, logits)
    return logits


def draw(key: jax.Array, logits: jax.Array, sampling: Sampling) -> tuple[jax.Array, jax.Array]:
    """Draws a token from each row of logits [..., V], with one key for all, or one for each [...].

    Returns tokens int32 [...], and their log-probabilities float32 [...] under the filtered logits
    (greedy: under all).
    """
    chex.assert_rank(logits, {1, 2, 3})
    if sampling.greedy:
        tokens = jnp.argmax(logits, axis=-1)
        return tokens.astype(jnp.int32), token_log_probs(logits, tokens)

    # What is drawn and its log-probability are of the same, filtered distribution.
    logits = filtered(logits, sampling)
    if key.ndim:
        chex.assert_shape(key, logits.shape[:-1])
        flat_logits = logits.reshape(-1, logits.shape[-1])
        tokens = jax.vmap(jax.random.categorical)(key.reshape(-1), flat_logits).reshape(key.shape)
    else:
        tokens = jax.random.categorical(key, logits, axis=-1)
    return tokens.astype(jnp.int32), token_log_probs(logits, tokens)


def token_log_probs(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Log-probabilities float32 [...] of tokens int32 [...] under logits [..., V]."""
    logits = logits.astype(jnp.float32)
    # One token's log-softmax, without an array of all of them.
    chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)
