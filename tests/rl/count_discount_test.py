"""The count discount: one formula, whose numbers do not depend on who asks."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.rl.algorithms.total_reward import discount_by_count
from motif_jax.rl.count_discount import discount, pay_sentences

EXPONENTS = (0.0, 0.5, 1.0, 2.0, 3.0, 2.7)
VISITS = np.arange(1, 1001)
REWARDS = np.random.default_rng(0).normal(0, 2, VISITS.shape)


def test_the_published_exponent_divides_by_the_cube() -> None:
    np.testing.assert_array_equal(
        discount(np.array([8.0, 8.0, -27.0]), np.array([1, 2, 3]), 3.0), [8, 1, -1]
    )


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_numbers_of_python_are_divided_as_by_the_formula(exponent: float) -> None:
    for reward, count in zip(REWARDS.tolist(), VISITS.tolist(), strict=True):
        quotient = discount(reward, count, exponent)
        assert type(quotient) is float
        assert quotient == reward / count**exponent


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("namespace", [np, jnp], ids=["numpy", "jax"])
def test_arrays_keep_their_type_and_the_bits_of_the_formula(
    namespace: Any, dtype: Any, exponent: float
) -> None:
    rewards = namespace.asarray(REWARDS.astype(dtype))
    counts = namespace.asarray(VISITS)

    discounted = discount_by_count(rewards, counts, exponent)

    wanted = rewards / namespace.maximum(counts.astype(rewards.dtype), 1.0) ** exponent
    assert isinstance(discounted, type(rewards))
    assert discounted.dtype == rewards.dtype
    np.testing.assert_array_equal(discounted, wanted)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_a_sentence_is_paid_as_an_array_of_its_visits(exponent: float) -> None:
    count = 20
    visits: dict[bytes, int] = {}

    paid = pay_sentences([b"You hit."] * count, {b"You hit.": 4.5}, visits, exponent)

    wanted = discount_by_count(np.full(count, 4.5), VISITS[:count], exponent)
    np.testing.assert_allclose(paid, wanted, rtol=1e-15)
