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


@pytest.mark.parametrize(
    ("kind", "middle", "end"),
    [("constant", 1.0, 1.0), ("linear", 0.55, 0.1), ("cosine", 0.55, 0.1)],
)
def test_learning_rates_rise_and_fall_by_their_schedule(
    kind: str, middle: float, end: float
) -> None:
    config = Optimizer(learning_rate=1.0, final_fraction=0.1, warmup_steps=4, schedule=kind)

    rate = schedules.make_schedule(config, 104)

    rates = [rate(step) for step in (0, 1, 2, 3, 4, 54, 104, 500)]
    np.testing.assert_allclose(rates, [0.25, 0.5, 0.75, 1, 1, middle, end, end], rtol=1e-6)


def test_a_schedule_without_warm_up_begins_at_its_learning_rate() -> None:
    rate = schedules.make_schedule(Optimizer(learning_rate=1.0, final_fraction=0.1), 10)

    assert rate(0) == 1


def test_steps_are_counted_exactly_beyond_what_one_number_holds() -> None:
    add = jax.jit(schedules.add_steps)
    total = 7_000_000_000
    added = 999_999_937

    count = schedules.no_steps()
    for number in range(1, 8):
        count = add(count, added)

        assert int(count[0]) * 2**30 + int(count[1]) == number * added
        np.testing.assert_allclose(
            schedules.share_done(count, total), number * added / total, rtol=1e-6
        )


def test_warm_up_counts_steps_and_decay_follows_the_runs_share() -> None:
    config = Optimizer(learning_rate=1.0, warmup_steps=4, schedule="linear")
    optimizer = schedules.make_optimizer(config)
    state = optimizer.init(np.ones(2, np.float32))

    rates = []
    for share in (0.0, 0.0, 0.5, 0.5, 0.5, 0.75, 1.0, 1.2):
        updates, state = optimizer.update(np.ones(2, np.float32), state, share=share)
        rates.append(float(state[-1].rate))
        np.testing.assert_allclose(updates, -rates[-1], rtol=1e-4)

    np.testing.assert_allclose(rates, [0.25, 0.5, 0.375, 0.5, 0.5, 0.25, 0, 0], rtol=1e-6)


def test_a_run_that_ends_before_its_warm_up_is_refused() -> None:
    optimizer = Optimizer(warmup_steps=9)
    schedules.check_warmup(optimizer, 10)
    with pytest.raises(
        UserError, match=r"config.optimizer.warmup_steps=9: must be below the 9 optimiser st"
    ):
        schedules.check_warmup(optimizer, 9)


@pytest.mark.parametrize("total_steps", [None, 5], ids=["agent", "reward"])
@pytest.mark.parametrize(("limit", "factor"), [(0.0, 1.0), (2.5, 0.5), (5.0, 1.0), (6.0, 1.0)])
def test_the_norm_of_all_gradients_is_clipped(
    total_steps: int | None, limit: float, factor: float
) -> None:
    # So large an epsilon leaves a step of g / eps.
    config = Optimizer(max_gradient_norm=limit, learning_rate=0.1, b1=0.0, b2=0.0, eps=1e3)
    optimizer = schedules.make_optimizer(config, total_steps)
    gradient = {"a": jnp.array([3.0]), "b": {"c": jnp.array([[0.0, -4.0]])}}

    updates, _ = optimizer.update(gradient, optimizer.init(gradient), gradient, share=0.0)

    expected = jax.tree.map(lambda leaf: -1e-4 * factor * leaf, gradient)
    chex.assert_trees_all_close(updates, expected, rtol=0.01, atol=0)


def test_only_matrices_decay_in_stacked_blocks_too():
    params = {
        "dense": {"kernel": np.zeros((2, 3)), "bias": np.zeros(3)},
        "blocks_0_3": {"dense": {"kernel": np.zeros((3, 2, 3)), "bias": np.zeros((3, 3))}},
    }

    decays = schedules.matrices(params)

    layer = {"kernel": True, "bias": False}
    assert decays == {"dense": layer, "blocks_0_3": {"dense": layer}}
