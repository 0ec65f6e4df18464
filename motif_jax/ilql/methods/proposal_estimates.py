"""The estimates of a method whose policy proposes actions (CHAI)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.ilql.agent.text_agent import TextAgentNetwork, running_mean
from motif_jax.ilql.methods import chai, implicit_q
from motif_jax.ilql.methods.chosen_states import chosen_states
from motif_jax.ilql.methods.implicit_q import ActionQ, Estimates, ImplicitQSettings, TextBatch
from motif_jax.lm.model import States


def estimates(
    agent: TextAgentNetwork,
    heads: Any,
    target_heads: Any,
    states: States,
    batch: TextBatch,
    settings: ImplicitQSettings,
    chai_scores: bool,
    zero_after_last: bool,
) -> Estimates:
    """Q of the mean states of actions in the data, and of actions that the policy proposes (see
    `ilql.methods.chai`).
    """
    candidates = batch.candidates
    means = chosen_states(running_mean(states.after, batch.valid), batch.action_positions)
    # [B, K + 1, N, D]: the first K states propose for the conservative term, the last K for Q's
    # bootstrap.
    count, width = candidates.states.shape[2:]
    noise = chai.random_states(candidates.seeds, batch.action_positions.shape[1], count, width)

    qs = []
    for name in agent.design.qs:
        q = agent.heads.apply(heads, name, means)
        q_candidates = agent.heads.apply(heads, name, candidates.states[:, :-1])
        q_noise = agent.heads.apply(heads, name, noise)
        conservative = chai.conservative(
            q, q_candidates, candidates.log_probs[:, :-1], q_noise, width, chai_scores
        )
        qs.append(ActionQ(q, conservative, jnp.zeros_like(q)))

    next_states = candidates.states[:, 1:]
    next_qs = [
        agent.target_heads.apply(target_heads, name, next_states) for name in agent.design.qs
    ]
    best = implicit_q.target_of(next_qs, settings).max(axis=-1)
    if zero_after_last:
        # Published: 0 after the last action, by the mask of the action after each.
        best = best * implicit_q.values_of_next_action(batch.action_mask.astype(jnp.float32))
    return Estimates(
        values=None,
        qs=qs,
        target_q=None,
        next_values=jax.lax.stop_gradient(best),
        log_probs=None,
    )
