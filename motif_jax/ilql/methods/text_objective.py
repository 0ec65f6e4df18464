"""The loss of a method on dialogues: the agent's estimates (text_estimates.py) go into
`Rule.losses`, and the terms are weighted.

`Rule.losses` is `implicit_q.losses` unless a method of your own has another: V's expectile
regression, Q's Bellman error, the policy's cloning.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.core.training.gradient_sums import Spread
from motif_jax.ilql.methods import value_spreads
from motif_jax.ilql.methods.implicit_q import Counts, TextBatch
from motif_jax.ilql.methods.text_estimates import Estimator


class CountedBatch(NamedTuple):
    """A micro-batch, and the denominators of its sums, float32 scalars, which are those of the
    whole batch.
    """

    batch: TextBatch
    counts: Counts


class LossTerms(NamedTuple):
    """The loss of a micro-batch and its terms, divided but not weighted; float32 scalars."""

    loss: jax.Array
    q: jax.Array
    v: jax.Array
    conservative: jax.Array
    margin: jax.Array
    policy: jax.Array


class MeasuredLoss(NamedTuple):
    """The terms of a micro-batch, and statistics of the numbers behind them, see
    `value_spreads.spreads`.
    """

    terms: LossTerms
    spreads: dict[str, Spread]

    @property
    def loss(self) -> jax.Array:
        return self.terms.loss


@dataclasses.dataclass(frozen=True)
class Objective(Estimator):
    """A method's loss."""

    reward_scale: float = 1.0  # rewards are divided by it

    def terms(
        self, learned: Any, frozen: Any, part: CountedBatch, key: jax.Array | None
    ) -> LossTerms:
        """The loss of a micro-batch; see `measured`."""
        return self.measured(learned, frozen, part, key).terms

    def measured(
        self, learned: Any, frozen: Any, part: CountedBatch, key: jax.Array | None
    ) -> MeasuredLoss:
        """The loss of a micro-batch with its terms and spreads, for `gradient_sums.gradient_sums`.

        Args:
          learned, frozen: see `agent_start.Start`; `frozen` has the targets as `target`.
          part: the micro-batch, and the counts of the whole batch.
          key: of dropout; None: no dropout.
        """
        batch, counts = part
        if self.reward_scale != 1:
            # Rewards alone: the returns of a decision transformer stay in units of the data.
            batch = batch._replace(rewards=batch.rewards / self.reward_scale)
        estimates = self.estimates(learned, frozen, batch, key)
        sums = self.rule.losses(batch, estimates, self.settings)

        # Values learn from actions, the policy from tokens; a batch may have neither.
        actions = jnp.maximum(counts.actions, 1.0)
        policy_tokens = jnp.maximum(counts.policy, 1.0)
        means = {
            "q": sums.q / actions,
            "v": sums.v / actions,
            "conservative": sums.conservative / actions,
            "margin": sums.margin / actions,
            "policy": sums.policy / policy_tokens,
        }
        loss = jnp.zeros(())
        for name, mean in means.items():
            loss += getattr(self.weights, name) * mean
        return MeasuredLoss(
            LossTerms(loss=loss, **means), value_spreads.spreads(batch, estimates, self.settings)
        )
