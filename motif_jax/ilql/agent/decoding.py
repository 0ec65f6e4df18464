"""Steers a policy by values (Snell et al. 2022, ILQL), token by token or among whole candidates."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.core import config as checks
from motif_jax.lm.generation import IMPOSSIBLE, Sampling, filtered


@dataclasses.dataclass(frozen=True)
class Decoding:
    """Settings of decoding an action, the keys of `Decode`, which says what they mean."""

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
        is_valid = self.kind not in ("sample", "greedy") or self.width * self.batches == 1
        allowed = f"'beam' or 'rerank' for width={self.width} and batches={self.batches}"
        checks.require(is_valid, "decode.kind", self.kind, allowed)

        is_valid = self.kind != "beam" or self.batches == 1
        checks.require(
            is_valid, "decode.batches", self.batches, "1 for beams; 'rerank' has several"
        )

        # Its logarithms would end a training at its first games.
        weight = self.advantage_weight
        is_valid = self.advantage_form != "sign" or 0 < weight < 1
        checks.require(
            is_valid, "decode.advantage_weight", weight, "between 0 and 1 in the form 'sign'"
        )

        allowed = "True, or config.decode.advantages must be True"
        checks.require(self.logits or self.advantages, "decode.logits", False, allowed)

    @property
    def sampling(self) -> Sampling:
        """Filters of the policy's logits."""
        return Sampling(False, self.temperature, self.top_k, self.top_p)

    @property
    def draws(self) -> Sampling:
        """How a token is drawn from steered logits, which are filtered already."""
        return Sampling(greedy=self.kind == "greedy")

    @property
    def candidates(self) -> int:
        """Continuations among which an action is chosen."""
        return self.width * self.batches if self.kind == "rerank" else 1


class TokenOutputs(NamedTuple):
    """An agent's outputs at a state.

    Attributes:
      logits: float32 [..., V], of the policy.
      q: float32 [..., V], the smaller target Q of every token; None without values.
      v: float32 [...]; None without values.
    """

    logits: jax.Array
    q: jax.Array | None = None
    v: jax.Array | None = None


def perturbation(advantages: jax.Array, decoding: Decoding) -> jax.Array:
    """The term that advantages A float32 [..., V] add to logits, clipped from above: w A, or in the
    form 'sign' log w or log (1 - w).
    """
    weight = decoding.advantage_weight
    if decoding.advantage_form == "exp":
        term = weight * advantages
    else:
        # Both are finite, since the weight is between 0 and 1.
        term = jnp.where(advantages > 0, math.log(weight), math.log1p(-weight))
    if decoding.advantage_clip is None:
        return term
    # Wordle's published limit is 0: a young Q then makes no letter likelier that spells no word.
    return jnp.minimum(term, decoding.advantage_clip)


def without(logits: jax.Array, token: int) -> jax.Array:
    """Logits [..., V] with `token` masked."""
    return jnp.where(jnp.arange(logits.shape[-1]) == token, IMPOSSIBLE, logits)


def steered(outputs: TokenOutputs, decoding: Decoding, pad: int) -> jax.Array:
    """The logits float32 [..., V] that a token other than `pad` is drawn from.

    They are z / temperature, filtered by top-k and top-p, plus `perturbation` of Q - V; `decoding`
    may turn either part off.
    """
    logits = without(outputs.logits.astype(jnp.float32), pad)
    # Where the policy's logits do not count, all tokens but the padding begin equal.
    total = without(jnp.zeros_like(logits), pad)
    if decoding.logits:
        total = filtered(logits, decoding.sampling)
    # What the filters exclude is -inf, and stays so with any advantage.
    if decoding.advantages and outputs.q is not None and outputs.v is not None:
        chex.assert_equal_shape([outputs.q, logits])
        chex.assert_shape(outputs.v, logits.shape[:-1])
        total = total + perturbation(outputs.q - outputs.v[..., None], decoding)
    return total


class TokenFacts(NamedTuple):
    """Numbers of generated tokens, all [...].

    Attributes:
      steered: float32, log-probability under the steered logits.
      policy: float32, log-probability under the policy alone, without filters.
      q, v: float32, of the token, and of the state before it; 0 without values.
      by_policy, by_values: int32, the best token by the policy alone, and by the values alone.
    """

    steered: jax.Array
    policy: jax.Array
    q: jax.Array
    v: jax.Array
    by_policy: jax.Array
    by_values: jax.Array


def token_facts(
    outputs: TokenOutputs, steered_logits: jax.Array, tokens: jax.Array, pad: int
) -> TokenFacts:
    """`TokenFacts` of tokens int32 [...] that were drawn from `steered_logits` float32 [..., V] of
    `outputs`.
    """
    logits = without(outputs.logits.astype(jnp.float32), pad)

    def of_token(numbers: jax.Array) -> jax.Array:
        return jnp.take_along_axis(numbers, tokens[..., None], axis=-1)[..., 0]

    def best(numbers: jax.Array) -> jax.Array:
        return jnp.argmax(numbers, axis=-1).astype(jnp.int32)

    q = jnp.zeros(tokens.shape, jnp.float32)
    by_policy = by_values = best(logits)
    if outputs.q is not None:
        q_of_all = without(outputs.q, pad)
        q = of_token(q_of_all)
        by_values = best(q_of_all)
    return TokenFacts(
        steered=of_token(jax.nn.log_softmax(steered_logits)),
        policy=of_token(jax.nn.log_softmax(logits)),
        q=q,
        v=jnp.zeros(tokens.shape, jnp.float32) if outputs.v is None else outputs.v,
        by_policy=by_policy,
        by_values=by_values,
    )


def summed_scores(facts: TokenFacts, valid: jax.Array, decoding: Decoding) -> jax.Array:
    """Scores float32 [...] of candidates of tokens [..., M]: a1 sum A + a2 sum log p, with p from
    the steered logits.
    """
    chex.assert_equal_shape([facts.q, valid])
    advantages = jnp.where(valid, facts.q - facts.v, 0.0).sum(-1)
    log_probs = jnp.where(valid, facts.steered, 0.0).sum(-1)
    return (
        decoding.rerank_advantage_weight * advantages + decoding.rerank_log_prob_weight * log_probs
    )


def utterance_scores(
    values: jax.Array, facts: TokenFacts, valid: jax.Array, decoding: Decoding
) -> jax.Array:
    """Scores float32 [...] of candidates with one value [...] each: value plus `log_prob_weight`
    times log pi of the tokens [..., M].
    """
    chex.assert_equal_shape([facts.policy, valid])
    chex.assert_shape(values, valid.shape[:-1])
    return values + decoding.log_prob_weight * jnp.where(valid, facts.policy, 0.0).sum(-1)


def divergence(facts: TokenFacts, valid: jax.Array, decoding: Decoding) -> jax.Array:
    """The published estimate of an action's divergence from the policy, nats, float32 [...].

    It is log p - log pi of the tokens [..., M], drawn from p; the best of n adds
    log n - (n - 1) / n. Beams, and greedy tokens, which are a beam of width 1, are not drawn:
    theirs is -log pi.
    """
    policy = jnp.where(valid, facts.policy, 0.0).sum(-1)
    if decoding.kind in ("beam", "greedy"):
        return -policy
    of_sample = jnp.where(valid, facts.steered, 0.0).sum(-1) - policy
    count = decoding.candidates
    # The second term is 0 for one candidate.
    return of_sample + (math.log(count) - (count - 1) / count)
