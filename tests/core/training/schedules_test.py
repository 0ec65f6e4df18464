"""Learning rates over a training, and which settings of them are refused."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.sections import Optimizer
from motif_jax.core.training import schedules


def test_learning_rates() -> None:
    settings = {"learning_rate": 1.0, "final_fraction": 0.1}
    for kind, end, middle in (("constant", 1.0, 1.0), ("linear", 0.1, 0.55), ("cosine", 0.1, 0.55)):
        rate = schedules.make_schedule(Optimizer(warmup_steps=4, schedule=kind, **settings), 104)
        rates = [rate(step) for step in (0, 1, 2, 3, 4, 54, 104, 500)]
        np.testing.assert_allclose(rates, [0.25, 0.5, 0.75, 1, 1, middle, end, end], rtol=1e-6)
    assert schedules.make_schedule(Optimizer(**settings), 10)(0) == 1


def test_steps_are_counted_exactly_beyond_what_one_number_holds() -> None:
    count, add = schedules.no_steps(), jax.jit(schedules.add_steps)
    total, more = 7_000_000_000, 999_999_937
    for number in range(1, 8):
        count = add(count, more)
        assert int(count[0]) * 2**30 + int(count[1]) == number * more
        np.testing.assert_allclose(schedules.share_done(count, total), number * more / total, rtol=1e-6)


def test_warm_up_counts_steps_and_decay_the_share_of_the_run() -> None:
    settings = Optimizer(learning_rate=1.0, warmup_steps=4, schedule="linear")
    optimizer, rates = schedules.make_optimizer(settings), []
    state = optimizer.init(np.ones(2, np.float32))
    for share in (0.0, 0.0, 0.5, 0.5, 0.5, 0.75, 1.0, 1.2):
        moved, state = optimizer.update(np.ones(2, np.float32), state, share=share)
        rates.append(float(state[-1].rate))
        np.testing.assert_allclose(moved, -rates[-1], rtol=1e-4)
    np.testing.assert_allclose(rates, [0.25, 0.5, 0.375, 0.5, 0.5, 0.25, 0, 0], rtol=1e-6)


def test_a_run_that_ends_before_its_warm_up_is_refused() -> None:
    optimizer = Optimizer(warmup_steps=9)
    schedules.check_warmup(optimizer, 10)
    with pytest.raises(UserError, match=r"config.optimizer.warmup_steps=9: must be below the 9 optimiser st"):
        schedules.check_warmup(optimizer, 9)


@pytest.mark.parametrize("total_steps", [None, 5], ids=["agent", "reward"])
@pytest.mark.parametrize(("limit", "factor"), [(0.0, 1.0), (2.5, 0.5), (5.0, 1.0), (6.0, 1.0)])
def test_the_norm_of_all_gradients_is_clipped(total_steps: int | None, limit: float, factor: float) -> None:
    # So large an epsilon leaves a step of g / eps.
    config = Optimizer(max_gradient_norm=limit, learning_rate=0.1, b1=0.0, b2=0.0, eps=1e3)
    optimizer = schedules.make_optimizer(config, total_steps)
    gradient = {"a": jnp.array([3.0]), "b": {"c": jnp.array([[0.0, -4.0]])}}
    moved, _ = optimizer.update(gradient, optimizer.init(gradient), gradient, share=0.0)
    expected = jax.tree.map(lambda leaf: -1e-4 * factor * leaf, gradient)
    chex.assert_trees_all_close(moved, expected, rtol=0.01, atol=0)
