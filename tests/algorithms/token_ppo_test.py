"""PPO of free text: advantages of tokens, by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from motif_jax.algorithms import token_ppo
from motif_jax.algorithms.implicit_q import TextBatch


def test_advantages_run_over_tokens_and_end_with_the_dialogue() -> None:
    """Two tokens that end a dialogue; one token of a dialogue that goes on; padding, which may say anything."""
    live = np.array([[True, True, False], [True, False, False]])
    terminals = np.array([[0, 0, 1, 1], [0, 0, 1, 1]], np.float32)
    none = np.zeros((2, 3), np.int32)
    batch = TextBatch(
        none, live, none, live, none, none, none, np.zeros((2, 3), np.float32), terminals, live, np.zeros(2)
    )
    rewards = jnp.array([[0.5, 1.0, 9.0], [-1.0, 9.0, 9.0]])
    values = jnp.array([[0.2, 0.4, 7.0, 7.0], [0.3, 2.0, 7.0, 7.0]])
    gamma, trace = 0.9, 0.5
    last = 1.0 - 0.4
    first = 0.5 + gamma * 0.4 - 0.2 + gamma * trace * last
    other = -1.0 + gamma * 2.0 - 0.3
    found = token_ppo.targets(batch, rewards, values, gamma, trace)
    np.testing.assert_allclose(found.advantage, [[first, last, 0], [other, 0, 0]], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.value[live], [first + 0.2, last + 0.4, other + 0.3], rtol=1e-6)
