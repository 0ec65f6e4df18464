"""PPO of free text: advantages of tokens, by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from motif_jax.ilql.methods import token_ppo
from motif_jax.ilql.methods.implicit_q import TextBatch


def test_advantages_run_over_tokens_and_end_with_the_dialogue() -> None:
    """Two tokens that end a dialogue; one of a dialogue that goes on, and three; padding, which may
    say anything.
    """
    live = np.array([[True, True, False], [True, False, False], [True, True, True]])
    terminals = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]], np.float32)
    none = np.zeros((3, 3), np.int32)
    batch = TextBatch(
        none,
        live,
        none,
        live,
        none,
        none,
        none,
        np.zeros((3, 3), np.float32),
        terminals,
        live,
        np.zeros(3),
    )
    rewards = jnp.array([[0.5, 1.0, 9.0], [-1.0, 9.0, 9.0], [0.0, 0.0, 1.0]])
    values = jnp.array([[0.2, 0.4, 7.0, 7.0], [0.3, 2.0, 7.0, 7.0], [0.1, 0.2, 0.3, 5.0]])
    gamma = 0.9
    trace = 0.5
    last = 1.0 - 0.4
    first = 0.5 + gamma * 0.4 - 0.2 + gamma * trace * last
    other = -1.0 + gamma * 2.0 - 0.3
    # backwards from the last token, behind which the value is 5
    last_row = [1.0 + gamma * 5.0 - 0.3]
    for value, following in ((0.2, 0.3), (0.1, 0.2)):
        last_row.insert(0, gamma * following - value + gamma * trace * last_row[0])
    targets = token_ppo.targets(batch, rewards, values, gamma, trace)
    expected = np.array([[first, last, 0], [other, 0, 0], last_row])
    np.testing.assert_allclose(targets.advantage, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        targets.value[live], (expected + np.asarray(values[:, :-1]))[live], rtol=1e-6
    )
