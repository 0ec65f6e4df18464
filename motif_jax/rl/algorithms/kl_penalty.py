"""Penalises a language policy's divergence from a reference (Ziegler et al. 2019, section 2.1; as
in TRL and OpenRLHF).

The reward of action a in state s is r - beta (log pi(a|s) - log pi_ref(a|s)), whose expectation
under pi is r - beta KL(pi || pi_ref).
"""

from __future__ import annotations

import dataclasses

import chex
import jax
import jax.numpy as jnp

from motif_jax.core import config as checks
from motif_jax.rl.algorithms.config import Kl

Array = jax.Array
# Relative errors of the divergence are clipped to this before they change the coefficient (Ziegler
# et al. 2019, section 2.2).
MAX_RELATIVE_ERROR = 0.2


def check(kl: Kl, section: str) -> None:
    """Raises UserError for values that do not fit together; `section` is their path in the
    config.
    """
    allowed = f"above 0 with config.{section}.target={kl.target}"
    checks.require(
        kl.target is None or kl.coefficient > 0, f"{section}.coefficient", kl.coefficient, allowed
    )


@dataclasses.dataclass(frozen=True)
class Controller:
    """Adapts beta to the divergence (Ziegler et al. 2019, section 2.2)."""

    target: float | None  # nats an action; None keeps beta constant
    horizon: float  # in actions

    def adapted(self, coefficient: Array, kl: Array, actions: Array) -> Array:
        """beta for the next update:
        beta (1 + clip(kl / target - 1, -0.2, 0.2) min(actions / horizon, 1)).

        Source: Ziegler et al. 2019, section 2.2. Their constant K_beta is actions / horizon in
        their code; here it is 1 at most.

        Args:
          coefficient: beta of this update, float32 scalar.
          kl: divergence from the reference, mean of the update's actions on all devices, float32
            scalar, nats an action.
          actions: their number, float32 scalar.

        Returns:
          float32 scalar; `coefficient` where there is no target.
        """
        chex.assert_rank([coefficient, kl, actions], 0)
        if self.target is None:
            return coefficient
        error = jnp.clip(kl / self.target - 1.0, -MAX_RELATIVE_ERROR, MAX_RELATIVE_ERROR)
        return coefficient * (1.0 + error * jnp.minimum(actions / self.horizon, 1.0))


def penalty(log_prob: Array, reference: Array, coefficient: Array) -> Array:
    """The term -beta (log pi - log pi_ref) that is added to rewards, without gradient; float32
    [...].

    Args:
      log_prob, reference: float32 [...], log-probabilities in nats under the policy and under the
          reference.
      coefficient: beta, float32 scalar.
    """
    chex.assert_equal_shape([log_prob, reference])
    return jax.lax.stop_gradient(-coefficient * (log_prob - reference))
