"""The entropy of policies over numbered choices, some of which may not exist."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.nets import distributions

LOGITS = np.random.default_rng(0).normal(0, 3, (2, 5, 7)).astype(np.float32)


def by_formula(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits.astype(np.float64))
    p = exponentials / exponentials.sum(-1, keepdims=True)
    return -(p * np.log(p)).sum(-1)


def gradient_of(logits: jax.Array | np.ndarray) -> jax.Array:
    return jax.jit(jax.grad(lambda x: distributions.categorical_entropy(x).sum()))(logits)


def test_entropy_equals_its_formula() -> None:
    entropy = jax.jit(distributions.categorical_entropy)(LOGITS)
    assert entropy.shape == LOGITS.shape[:-1]
    assert entropy.dtype == np.float32
    np.testing.assert_allclose(entropy, by_formula(LOGITS), rtol=1e-5)


def test_entropy_of_equal_logits_is_the_log_of_their_number() -> None:
    np.testing.assert_allclose(
        distributions.categorical_entropy(jnp.full((3, 8), 2.5)), np.log(8), rtol=1e-6
    )


def test_the_gradient_of_entropy_equals_its_formula() -> None:
    log_p = np.asarray(jax.nn.log_softmax(LOGITS), np.float64)
    wanted = -np.exp(log_p) * (log_p + by_formula(LOGITS)[..., None])
    np.testing.assert_allclose(gradient_of(LOGITS), wanted, rtol=1e-4, atol=1e-6)


def test_impossible_choices_leave_the_entropy_of_the_others() -> None:
    logits = LOGITS.copy()
    logits[..., 2] = -np.inf
    logits[0, 0, 4:] = -np.inf
    entropy = distributions.categorical_entropy(logits)
    gradient = gradient_of(logits)

    exists = np.isfinite(logits)
    assert np.isfinite(entropy).all()
    assert np.isfinite(gradient).all()
    assert (np.asarray(gradient)[~exists] == 0).all()
    for row in np.ndindex(logits.shape[:-1]):
        others = jnp.asarray(LOGITS[row][exists[row]])
        np.testing.assert_allclose(
            entropy[row], distributions.categorical_entropy(others), rtol=1e-5
        )
        np.testing.assert_allclose(
            gradient[row][exists[row]], gradient_of(others), rtol=1e-4, atol=1e-6
        )


def test_a_single_choice_has_no_entropy_and_no_gradient() -> None:
    logits = jnp.array([-jnp.inf, 3.0, -jnp.inf])
    assert distributions.categorical_entropy(logits) == 0
    np.testing.assert_array_equal(gradient_of(logits), 0)


def test_entropy_does_not_hide_logits_that_are_not_numbers() -> None:
    logits = jnp.array([[0.0, jnp.nan], [-jnp.inf, -jnp.inf]])
    assert np.isnan(distributions.categorical_entropy(logits)).all()
