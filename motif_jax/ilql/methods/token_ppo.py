"""PPO of free text: every token that an agent wrote is an action (Ziegler et al. 2019; Ouyang et
al. 2022; as in TRL and OpenRLHF).

The states of a dialogue are those before each token of its utterances, and the last one. The
environment's text between two utterances belongs to the step from `</a>` to the next utterance's
first token. The reward r_k is the utterance's at its last token, and at every token
-beta (log pi - log pi_ref) (`kl_penalty`). With d_k = 1 where a dialogue has ended:

    delta_k  = r_k + gamma (1 - d_{k+1}) V_{k+1} - V_k
    A_k      = delta_k + gamma lambda (1 - d_{k+1}) A_{k+1}
    target_k = A_k + V_k

`ppo.step_losses` computes the clipped losses of policy and value, each a mean over the tokens of a
minibatch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
from jax import Array

from motif_jax.ilql.methods.implicit_q import TextBatch
from motif_jax.rl.algorithms import ppo
from motif_jax.rl.algorithms.vtrace import Targets


class EpisodeBatch(NamedTuple):
    """Episodes side by side; numpy or jax arrays, with any axes in front of B."""

    dialogues: TextBatch  # an action is a token that the agent wrote
    # float32 [B, K], of these tokens under the policy that wrote them, nats; 0 after the last
    log_probs: Any
    utterances: Any  # float32 [B], the number of utterances


def targets(
    batch: TextBatch, rewards: Array, values: Array, discount: float, gae_lambda: float
) -> Targets:
    """Advantages and value targets float32 [B, K]; 0 and V where a token does not count.

    Args:
      rewards: float32 [B, K], with the penalty.
      values: float32 [B, K + 1], of all states under the policy that wrote.
      discount: gamma, of a step from one token to the next.
      gae_lambda: lambda of generalised advantage estimation.
    """
    chex.assert_equal_shape([rewards, batch.action_mask, values[:, :-1]])
    discounts = discount * (1.0 - batch.terminals[:, 1:])
    # [B, K] becomes [K, B], time first as the estimator has it. Padding counts as rows that only
    # carry a value: advantage 0, target V.
    of_steps = ppo.targets(
        values[:, :-1].T, values[:, -1], rewards.T, discounts.T, ~batch.action_mask.T, gae_lambda
    )
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x.T), of_steps)
