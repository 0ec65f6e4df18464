"""How the values of a batch are spread, for the log."""

from __future__ import annotations

import jax.numpy as jnp

from motif_jax.core.training.gradient_sums import Spread, spread
from motif_jax.ilql.methods import implicit_q
from motif_jax.ilql.methods.implicit_q import Estimates, ImplicitQSettings, TextBatch


def spreads(
    batch: TextBatch, estimates: Estimates, settings: ImplicitQSettings
) -> dict[str, Spread]:
    """Means and ranges of the losses' inputs over the actions that count; absent where the method
    has none.
    """
    mask = batch.action_mask
    of_inputs = {}
    if estimates.qs:
        q = jnp.stack([of_action.chosen for of_action in estimates.qs])
        of_inputs["q"] = spread(q, jnp.broadcast_to(mask, q.shape))
    advantages = estimates.advantages
    if estimates.values is not None and estimates.target_q is not None:
        values = estimates.values[:, :-1]
        of_inputs["v"] = spread(values, mask)
        of_inputs["target_q"] = spread(estimates.target_q, mask)
        # Where the policy is weighted, the advantages are those of its weights, without dropout.
        differences = estimates.target_q - values if advantages is None else advantages
        of_inputs["advantage"] = spread(differences, mask)
    if advantages is not None:
        of_inputs["policy_weight"] = spread(implicit_q.policy_weights(advantages, settings), mask)
    if estimates.entropies is not None:
        of_inputs["entropy"] = spread(estimates.entropies, implicit_q.taught_tokens(batch))
    return of_inputs
