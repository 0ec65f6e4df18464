"""Steers a policy's tokens by values (Snell et al. 2022, ILQL), a token or a whole candidate at a time."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.language.sampling import IMPOSSIBLE, Sampling, filtered
from motif_jax.support.errors import UserError

KINDS = ("sample", "greedy", "beam", "rerank")
FORMS = ("exp", "sign")


@dataclasses.dataclass(frozen=True)
class Decoding:
    """Settings of how an action is written.

    Attributes:
      kind: 'sample', 'greedy' (the likeliest token by the steered logits), 'beam' (the likeliest action of `width` beams by them), or
        'rerank' (of `batches` x `width` samples the one with the best score).
      max_tokens: of an action.
      width: beams, or samples of a batch.
      batches: of samples.
      temperature, top_k, top_p: of the policy's logits, before they are steered.
      advantage_weight: w.
      advantage_clip: what is added is at most this; None: any.
      advantage_form: 'exp': w A is added; 'sign': log w where A is above 0, else log (1 - w).
      logits, advantages: whether the policy's logits and the advantages count.
      rerank_advantage_weight, rerank_log_prob_weight: of the sums over a candidate's tokens in its score.
      log_prob_weight: of the policy's log-probability in the score where a candidate has one value (utterance ILQL).
      target_return: what a decision transformer is conditioned on.
    """

    kind: str = "sample"
    max_tokens: int = 6
    width: int = 1
    batches: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    advantage_weight: float = 0.0
    advantage_clip: float | None = None
    advantage_form: str = "exp"
    logits: bool = True
    advantages: bool = True
    rerank_advantage_weight: float = 1.0
    rerank_log_prob_weight: float = 0.0
    log_prob_weight: float = 0.0
    target_return: float = 0.0

    def __post_init__(self) -> None:
        for name, allowed in (("kind", KINDS), ("advantage_form", FORMS)):
            if (value := getattr(self, name)) not in allowed:
                raise UserError(f"config.decode.{name}={value}: must be one of {', '.join(allowed)}")
        for name in ("max_tokens", "width", "batches"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise UserError(f"config.decode.{name}={value}: must be a whole number of at least 1")
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise UserError(f"config.decode.{name}={value}: must be a finite number")
        if self.kind in ("sample", "greedy") and self.width * self.batches > 1:
            raise UserError(
                f"config.decode.kind={self.kind}: writes one action; for width={self.width}, batches={self.batches} take beam or rerank"
            )
        if self.kind == "beam" and self.batches > 1:
            raise UserError(f"config.decode.batches={self.batches}: beams have one batch; rerank has several")
        if self.advantage_form == "sign" and not 0 < self.advantage_weight < 1:
            raise UserError(
                f"config.decode.advantage_weight={self.advantage_weight}: must lie between 0 and 1 in the form 'sign'"
            )
        if not (self.logits or self.advantages):
            raise UserError(
                "config.decode.logits=False: must be True, or config.decode.advantages must be True"
            )
        try:
            _ = self.sampling
        except UserError as error:
            raise UserError(f"config.decode.{error}") from None

    @property
    def sampling(self) -> Sampling:
        """The filters of the policy's logits."""
        return Sampling(False, self.temperature, self.top_k, self.top_p)

    @property
    def draws(self) -> Sampling:
        """The draw of a token from steered, filtered logits."""
        return Sampling(greedy=self.kind == "greedy")

    @property
    def candidates(self) -> int:
        """The number of an action's candidates."""
        return self.width * self.batches if self.kind == "rerank" else 1

    def require_vocabulary(self, size: int) -> None:
        """Raises UserError where beams are wider than the vocabulary."""
        if self.kind == "beam" and self.width > size:
            raise UserError(
                f"config.decode.width={self.width}: must be at most {size}, the size of the vocabulary"
            )


_NUMBERS = (
    "temperature",
    "top_p",
    "advantage_weight",
    "advantage_clip",
    "rerank_advantage_weight",
    "rerank_log_prob_weight",
    "log_prob_weight",
    "target_return",
)


class TokenOutputs(NamedTuple):
    """An agent's outputs at a state.

    Attributes:
      logits: float32 [..., V], the policy's.
      q: float32 [..., V], the smaller of both target Qs of every token; None without values.
      v: float32 [...]; None without values.
    """

    logits: jax.Array
    q: jax.Array | None = None
    v: jax.Array | None = None


def perturbation(advantages: jax.Array, decoding: Decoding) -> jax.Array:
    """The term that advantages float32 [..., V] add to logits: w A, or the log of w or 1 - w by their signs; clipped from above."""
    weight = decoding.advantage_weight
    if decoding.advantage_form == "exp":
        added = weight * advantages
    else:
        added = jnp.where(advantages > 0, math.log(weight), math.log1p(-weight))
    clip = decoding.advantage_clip
    return added if clip is None else jnp.minimum(added, clip)


def without(logits: jax.Array, token: int) -> jax.Array:
    """Logits [..., V] by which `token` is not drawn."""
    return jnp.where(jnp.arange(logits.shape[-1]) == token, IMPOSSIBLE, logits)


def steered(outputs: TokenOutputs, decoding: Decoding, pad: int) -> jax.Array:
    """The logits that a token is drawn from.

    z / temperature, filtered by top-k and top-p, plus `perturbation` of Q - V; either part may be left out. Padding is never drawn.

    Args:
      outputs: of the states [...].
      decoding: how.
      pad: the token of padding.

    Returns:
      float32 [..., V].
    """
    logits = without(outputs.logits.astype(jnp.float32), pad)
    total = filtered(logits, decoding.sampling) if decoding.logits else without(jnp.zeros_like(logits), pad)
    if decoding.advantages and outputs.q is not None and outputs.v is not None:
        chex.assert_equal_shape([outputs.q, logits])
        chex.assert_shape(outputs.v, logits.shape[:-1])
        total = total + perturbation(outputs.q - outputs.v[..., None], decoding)
    return total


class TokenFacts(NamedTuple):
    """Numbers of written tokens, all [...].

    Attributes:
      steered: float32, log-probability by what they were drawn from.
      policy: float32, log-probability by the policy alone, without filters.
      q, v: float32, of the token, and of the state before it; 0 without values.
      by_policy, by_values: int32, the tokens that the policy, or the values, alone would say.
    """

    steered: jax.Array
    policy: jax.Array
    q: jax.Array
    v: jax.Array
    by_policy: jax.Array
    by_values: jax.Array


def token_facts(outputs: TokenOutputs, full: jax.Array, tokens: jax.Array, pad: int) -> TokenFacts:
    """`TokenFacts` of tokens int32 [...] that were drawn from steered logits `full` [..., V]."""
    logits = without(outputs.logits.astype(jnp.float32), pad)

    def of(values: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, tokens[..., None], axis=-1)[..., 0]

    zero = jnp.zeros(tokens.shape, jnp.float32)
    by_policy = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    q = None if outputs.q is None else without(outputs.q, pad)
    return TokenFacts(
        of(jax.nn.log_softmax(full)),
        of(jax.nn.log_softmax(logits)),
        zero if q is None else of(q),
        zero if outputs.v is None else outputs.v,
        by_policy,
        by_policy if q is None else jnp.argmax(q, axis=-1).astype(jnp.int32),
    )


def candidate_scores(facts: TokenFacts, valid: jax.Array, decoding: Decoding) -> jax.Array:
    """Scores float32 [...] of candidates whose tokens [..., M] are `valid`: a1 sum A + a2 sum log p, p being what they were drawn from."""
    chex.assert_equal_shape([facts.q, valid])
    advantages = jnp.where(valid, facts.q - facts.v, 0.0).sum(-1)
    log_probs = jnp.where(valid, facts.steered, 0.0).sum(-1)
    return decoding.rerank_advantage_weight * advantages + decoding.rerank_log_prob_weight * log_probs


def utterance_scores(values: jax.Array, facts: TokenFacts, valid: jax.Array, decoding: Decoding) -> jax.Array:
    """Scores float32 [...] of candidates that have a value [...] each: it, plus `log_prob_weight` times log pi of tokens [..., M]."""
    chex.assert_equal_shape([facts.policy, valid])
    chex.assert_shape(values, valid.shape[:-1])
    return values + decoding.log_prob_weight * jnp.where(valid, facts.policy, 0.0).sum(-1)


def divergence(facts: TokenFacts, valid: jax.Array, decoding: Decoding) -> jax.Array:
    """The published estimate of how far an action is from the policy, in nats, float32 [...].

    log p - log pi of the tokens [..., M] that were drawn from p; for the best of n plus log n - (n - 1) / n. Of beams -log pi, as
    they are no draw.
    """
    policy = jnp.where(valid, facts.policy, 0.0).sum(-1)
    if decoding.kind == "beam":
        return -policy
    found = jnp.where(valid, facts.steered, 0.0).sum(-1) - policy
    count = decoding.candidates
    return found + (math.log(count) - (count - 1) / count)
