"""What an update leaves alone, and what it refuses."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.rl.algorithms import trajectory, value_normalisation
from tests.agents import FLAT_SPEC, random_batch
from tests.rl.algorithms import update_test

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_step_limits_as_terminal_leave_no_bootstrap() -> None:
    batch = random_batch(FLAT_SPEC, 16, 6, 8, seed=2)
    assert batch.truncated.any()
    done = np.asarray(trajectory.done(batch))
    np.testing.assert_array_equal(done, batch.terminated)
    without = batch._replace(last=np.zeros_like(batch.last))
    np.testing.assert_array_equal(trajectory.done(without), batch.terminated | batch.truncated)


def test_empty_statistics_stay() -> None:
    before = value_normalisation.initial()
    after = value_normalisation.update(before, jnp.ones(3), jnp.zeros(3, bool), 0.5)
    assert after == before
    moved = value_normalisation.update(before, jnp.array([1.0, 3.0]), jnp.ones(2, bool), 0.5)
    np.testing.assert_allclose(value_normalisation.moments(moved), (2, 1))


def test_a_batch_of_wrong_shape_is_refused() -> None:
    (state, update), batch = update_test.start("entropy"), update_test.batch(0)
    with pytest.raises(AssertionError, match=r"shape \(6, 4\) but expected \(7, 4\)"):
        update(state, batch._replace(last=batch.last[:-1]))
