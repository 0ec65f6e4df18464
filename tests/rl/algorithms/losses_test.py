"""Loss terms, V-trace and GAE against the golden numbers, and what rows that end episodes do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.training import reductions
from motif_jax.nets import distributions
from motif_jax.rl.algorithms import losses
from motif_jax.rl.algorithms.returns import gae, vtrace

CASES = ("ordinary", "masked", "below_clamp", "over_clamp", "uniform", "not_finite")


# By the term its loss, what it is a function of, and the name of the gradient.
TERMS: dict[str, tuple[Any, str, str]] = {
    "policy_loss": (
        lambda ratio, n: losses.policy_loss(ratio, n["adv"], n["valids"], float(n["clip_high"]) - 1),
        "ratio", "grad_ratio",
    ),
    "value_loss": (
        lambda value, n: n["value_loss_coeff"] * losses.value_loss(
            value, n["values_old"], n["targets"], n["valids"], float(n["clip_value"])
        ),
        "values_new", "grad_values",
    ),
    "entropy_loss": (
        lambda logits, n: losses.entropy_loss(distributions.categorical_entropy(logits), n["valids"], float(n["entropy_coeff"])),
        "logits", "grad_logits",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TERMS)
def test_terms_of_the_loss(golden: Any, name: str) -> None:
    n = golden("ppo_losses.npz")
    loss, of, slope = TERMS[name]
    assert 1 / float(n["clip_high"]) == pytest.approx(float(n["clip_low"]))
    np.testing.assert_allclose(
        distributions.categorical_entropy(n["logits"]), n["entropy"], rtol=1e-5, atol=1e-6
    )
    value, gradient = jax.value_and_grad(loss)(n[of], n)
    np.testing.assert_allclose(value, n[name], rtol=1e-5)
    np.testing.assert_allclose(gradient, n[slope], rtol=1e-4, atol=1e-8)


# The published entropy loss stops on logits that are not finite: it has no such case.
@pytest.mark.parametrize(
    ("kind", "case"), [*(("symmetric_kl", c) for c in CASES), *(("entropy", c) for c in CASES[:-1])]
)
def test_exploration_losses(golden: Any, case: str, kind: str) -> None:
    n = golden("exploration_and_gae.npz")
    logits = n[f"{case}/logits"]
    valid = n[f"{case}/valid"]
    rows = (
        distributions.categorical_entropy(logits)
        if kind == "entropy"
        else losses.symmetric_kl(logits)
    )

    def loss(logits: Any, valid: Any, coefficient: float) -> Any:
        if kind == "entropy":
            return losses.entropy_loss(
                distributions.categorical_entropy(logits), valid, coefficient
            )
        return losses.symmetric_kl_loss(logits, valid, coefficient)

    np.testing.assert_allclose(rows, n[f"{case}/{kind}/per_row"], rtol=1e-5, atol=1e-6)
    graded = jax.jit(jax.value_and_grad(lambda x: loss(x, valid, float(n["coefficient"]))))
    value, gradient = graded(logits)
    np.testing.assert_allclose(value, n[f"{case}/{kind}/loss"], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(gradient, n[f"{case}/{kind}/gradient"], rtol=1e-4, atol=1e-8)
    if (kind, case) == ("symmetric_kl", "over_clamp"):
        np.testing.assert_allclose(value, n["coefficient"] * n["clamp_maximum"], rtol=1e-6)


def test_gae_equals_golden(golden: Any) -> None:
    n = golden("exploration_and_gae.npz")
    values = n["gae/values"]
    discount = (n["gae/gamma"] * (1 - n["gae/dones"])).astype(np.float32)
    last = np.zeros(discount.shape, bool)
    targets = jax.jit(gae)(
        values[:-1], values[-1], n["gae/rewards"], discount, last, float(n["gae/lambda"])
    )
    np.testing.assert_allclose(targets.advantage, n["gae/advantages"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(targets.value, n["gae/returns"], rtol=1e-5, atol=1e-5)


def vtrace_by_sum(
    x: dict[str, np.ndarray], rho_clip: float, c_clip: float
) -> tuple[np.ndarray, np.ndarray]:
    """Targets and advantages by the definition (Espeholt et al. 2018, equation 1), a sum of
    products for each row.
    """
    values = np.concatenate([x["value"], x["bootstrap_value"][None]]).astype(np.float64)
    rho = np.minimum(x["ratio"], rho_clip)
    c = np.minimum(x["ratio"], c_clip)
    target = values.copy()
    error = x["reward"] + x["discount"] * values[1:] - values[:-1]
    for s, b in np.ndindex(x["value"].shape):
        weight = 1.0
        for t in range(s, len(error)):
            if x["last"][t, b]:
                break
            target[s, b] += weight * rho[t, b] * error[t, b]
            weight *= x["discount"][t, b] * c[t, b]
    advantage = rho * (x["reward"] + x["discount"] * target[1:] - values[:-1])
    return target[:-1], np.where(x["last"], 0, advantage)


@pytest.mark.parametrize("clips", [(1.0, 1.0), (2.0, 0.7)])
def test_vtrace_equals_its_definition(clips: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    shape = (7, 25)
    numbers = rng.standard_normal((3, *shape)).astype(np.float32)
    x = {
        "value": numbers[0],
        "bootstrap_value": rng.standard_normal(shape[1]).astype(np.float32),
        "reward": numbers[1],
        "discount": np.where(rng.random(shape) < 0.2, 0, 0.9).astype(np.float32),
        "last": rng.random(shape) < 0.2,
        "ratio": np.exp(numbers[2]),
    }
    targets = jax.jit(vtrace)(**x, rho_clip=clips[0], c_clip=clips[1])
    value, advantage = vtrace_by_sum(x, *clips)
    np.testing.assert_allclose(targets.value, value, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(targets.advantage, advantage, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["vtrace", "gae"])
def test_a_truncated_step_bootstraps_and_a_terminated_one_does_not(method: str) -> None:
    shape = (5, 2)
    x = {
        "value": np.full(shape, 3.0, np.float32),
        "bootstrap_value": np.full(2, 3.0, np.float32),
        "reward": np.ones(shape, np.float32),
        "discount": np.full(shape, 0.5, np.float32),
        "last": np.zeros(shape, bool),
    }
    x["value"][2] = 10.0
    x["last"][2] = True
    x["discount"][1, 1] = 0.0
    x["reward"][2:] = np.array([[1e6], [777.0], [777.0]])
    targets = (
        vtrace(**x, ratio=np.ones(shape, np.float32))
        if method == "vtrace"
        else gae(**x, gae_lambda=1.0)
    )
    np.testing.assert_allclose(
        targets.value[:3], [[1 + 0.5 * 6, 1 + 0.5 * 1], [1 + 0.5 * 10, 1], [10, 10]]
    )
    np.testing.assert_allclose(targets.advantage[:3:2], [[4 - 3, 1.5 - 3], [0, 0]])


def test_means_ignore_rows_that_do_not_count() -> None:
    x = jnp.array([1.0, jnp.nan, 5.0, jnp.inf])
    valid = jnp.array([True, False, True, False])
    value, gradient = jax.value_and_grad(lambda y: reductions.mean(y, valid))(x)
    assert (value, gradient.tolist()) == (3, [0.5, 0, 0.5, 0])
    assert reductions.mean(x, jnp.zeros(4, bool)) == 0
    assert reductions.mean_and_std(x, valid) == pytest.approx((3, np.std([1, 5], ddof=1)))
    assert (reductions.minimum(x, valid), reductions.maximum(x, valid)) == (1, 5)


def test_means_over_an_axis_weigh_by_rows() -> None:
    x = np.arange(12.0).reshape(3, 4)
    valid = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], bool)

    def reduce(x: Any, valid: Any) -> tuple[Any, ...]:
        mean, std = reductions.mean_and_std(x, valid, "d")
        return mean, std, reductions.minimum(x, valid, "d"), reductions.maximum(x, valid, "d")

    reduced = np.transpose(jax.vmap(reduce, axis_name="d")(x, valid))
    # Each of the three places of the axis has the same numbers.
    expected = [x[valid].mean(), x[valid].std(ddof=1), 0, 4]
    np.testing.assert_allclose(reduced, [expected] * 3, rtol=1e-6)


def test_metrics_of_a_policy_are_of_the_rows_that_count() -> None:
    ratio = jnp.array([1.0, 2.0, 0.5, 9.0])
    entropy = jnp.array([1.0, 2.0, 3.0, 99.0])
    is_clipped = jnp.array([False, True, True, True])
    valid = jnp.array([True, True, True, False])

    metrics = losses.policy_metrics(ratio, entropy, is_clipped, valid, None)

    divergences = [r - 1 - np.log(r) for r in (1.0, 2.0, 0.5)]
    assert metrics == {
        "policy/entropy": pytest.approx(2.0),
        "policy/kl": pytest.approx(np.mean(divergences)),
        "policy/ratio_mean": pytest.approx(3.5 / 3),
        "policy/ratio_min": 0.5,
        "policy/ratio_max": 2.0,
        "policy/clip_fraction": pytest.approx(2 / 3),
    }
