"""Loss terms, V-trace and GAE against the golden numbers, and what rows that end episodes do."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.algorithms import losses, reductions
from motif_jax.algorithms.gae import gae
from motif_jax.algorithms.vtrace import vtrace
from motif_jax.envs.spec import MASKED

CASES = ("ordinary", "masked", "below_clamp", "over_clamp", "uniform", "not_finite")


def test_policy_loss(golden: Any) -> None:
    n = golden("ppo_losses.npz")
    clip_ratio = float(n["clip_high"]) - 1
    assert 1 / (1 + clip_ratio) == pytest.approx(float(n["clip_low"]))

    def loss(ratio: Any) -> Any:
        return losses.policy_loss(ratio, n["adv"], n["valids"], clip_ratio)

    value, gradient = jax.value_and_grad(loss)(n["ratio"])
    np.testing.assert_allclose(value, n["policy_loss"], rtol=1e-5)
    np.testing.assert_allclose(gradient, n["grad_ratio"], rtol=1e-4, atol=1e-8)


def test_value_loss(golden: Any) -> None:
    n = golden("ppo_losses.npz")

    def loss(value: Any) -> Any:
        old, targets, valid = n["values_old"], n["targets"], n["valids"]
        return n["value_loss_coeff"] * losses.value_loss(value, old, targets, valid, float(n["clip_value"]))

    value, gradient = jax.value_and_grad(loss)(n["values_new"])
    np.testing.assert_allclose(value, n["value_loss"], rtol=1e-5)
    np.testing.assert_allclose(gradient, n["grad_values"], rtol=1e-4, atol=1e-8)


def test_entropy_loss(golden: Any) -> None:
    n = golden("ppo_losses.npz")
    np.testing.assert_allclose(losses.entropy(n["logits"]), n["entropy"], rtol=1e-5, atol=1e-6)

    def loss(logits: Any) -> Any:
        return losses.entropy_loss(logits, n["valids"], float(n["entropy_coeff"]))

    value, gradient = jax.value_and_grad(loss)(n["logits"])
    np.testing.assert_allclose(value, n["entropy_loss"], rtol=1e-5)
    np.testing.assert_allclose(gradient, n["grad_logits"], rtol=1e-4, atol=1e-8)


# The published entropy loss stops on logits that are not finite: it has no such case.
@pytest.mark.parametrize(
    ("kind", "case"), [*(("symmetric_kl", c) for c in CASES), *(("entropy", c) for c in CASES[:-1])]
)
def test_exploration_losses(golden: Any, case: str, kind: str) -> None:
    n = golden("exploration_and_gae.npz")
    logits, valid = n[f"{case}/logits"], n[f"{case}/valid"]
    loss = {"symmetric_kl": losses.symmetric_kl_loss, "entropy": losses.entropy_loss}[kind]
    rows = {"symmetric_kl": losses.symmetric_kl, "entropy": losses.entropy}[kind](logits)
    np.testing.assert_allclose(rows, n[f"{case}/{kind}/per_row"], rtol=1e-5, atol=1e-6)
    for transform in (lambda f: f, jax.jit):
        f = transform(jax.value_and_grad(lambda x: loss(x, valid, float(n["coefficient"]))))
        value, gradient = f(logits)
        np.testing.assert_allclose(value, n[f"{case}/{kind}/loss"], rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(gradient, n[f"{case}/{kind}/gradient"], rtol=1e-4, atol=1e-8)
    if (kind, case) == ("symmetric_kl", "over_clamp"):
        np.testing.assert_allclose(value, n["coefficient"] * n["clamp_maximum"], rtol=1e-6)


def test_gae(golden: Any) -> None:
    n = {
        k.removeprefix("gae/"): v
        for k, v in golden("exploration_and_gae.npz").items()
        if k.startswith("gae/")
    }
    discount = (n["gamma"] * (1 - n["dones"])).astype(np.float32)
    arguments = (n["values"][:-1], n["values"][-1], n["rewards"], discount, np.zeros_like(n["dones"], bool))
    for f in (gae, jax.jit(gae)):
        targets = f(*arguments, float(n["lambda"]))
        np.testing.assert_allclose(targets.advantage, n["advantages"], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(targets.value, n["returns"], rtol=1e-5, atol=1e-5)


def random_rollout(seed: int, length: int = 7, rollouts: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (length, rollouts)
    return {
        "value": rng.standard_normal(shape).astype(np.float32),
        "bootstrap_value": rng.standard_normal(rollouts).astype(np.float32),
        "reward": rng.standard_normal(shape).astype(np.float32),
        "discount": np.where(rng.random(shape) < 0.2, 0, 0.9).astype(np.float32),
        "last": rng.random(shape) < 0.2,
        "ratio": np.exp(rng.standard_normal(shape)).astype(np.float32),
    }


def vtrace_by_sum(x: dict[str, np.ndarray], rho_clip: float, c_clip: float) -> tuple[np.ndarray, np.ndarray]:
    """The definition (Espeholt et al. 2018, equation 1) with explicit products, each row on its own."""
    length, rollouts = x["value"].shape
    values = np.concatenate([x["value"], x["bootstrap_value"][None]]).astype(np.float64)
    rho, c = np.minimum(x["ratio"], rho_clip), np.minimum(x["ratio"], c_clip)
    target, advantage = values.copy(), np.zeros((length, rollouts))
    for b in range(rollouts):
        for s in range(length):
            weight = 1.0
            for t in range(s, length):
                if x["last"][t, b]:
                    break
                gamma = x["discount"][t, b]
                target[s, b] += (
                    weight * rho[t, b] * (x["reward"][t, b] + gamma * values[t + 1, b] - values[t, b])
                )
                weight *= gamma * c[t, b]
    for t in range(length):
        step = x["reward"][t] + x["discount"][t] * target[t + 1] - values[t]
        advantage[t] = np.where(x["last"][t], 0, rho[t] * step)
    return target[:-1], advantage


@pytest.mark.parametrize("clips", [(1.0, 1.0), (2.0, 0.7)])
def test_vtrace_is_its_definition(clips: tuple[float, float]) -> None:
    for seed in range(5):
        x = random_rollout(seed)
        target, advantage = vtrace_by_sum(x, *clips)
        for f in (vtrace, jax.jit(vtrace)):
            got = f(**x, rho_clip=clips[0], c_clip=clips[1])
            np.testing.assert_allclose(got.value, target, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(got.advantage, advantage, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["vtrace", "gae"])
def test_a_truncated_step_bootstraps_and_a_terminated_one_does_not(method: str) -> None:
    """Two games end at row 1, their final observations lie in row 2; nothing crosses from row 3."""
    shape = (5, 2)
    x = {
        "value": np.full(shape, 3.0, np.float32),
        "bootstrap_value": np.full(2, 3.0, np.float32),
        "reward": np.ones(shape, np.float32),
        "discount": np.full(shape, 0.5, np.float32),
        "last": np.zeros(shape, bool),
        "ratio": np.ones(shape, np.float32),
    }
    x["value"][2] = 10.0
    x["last"][2] = True
    x["discount"][1, 1] = 0.0
    x["reward"][2:] = np.array([[1e6], [777.0], [777.0]])
    if method == "gae":
        ratio = x.pop("ratio")
        assert ratio.all()
        targets = gae(**x, trace=1.0)
    else:
        targets = vtrace(**x)
    np.testing.assert_allclose(targets.value[1], [1 + 0.5 * 10, 1])
    np.testing.assert_allclose(targets.value[0], [1 + 0.5 * 6, 1 + 0.5 * 1])
    np.testing.assert_allclose(targets.advantage[0], [4 - 3, 1.5 - 3])
    np.testing.assert_allclose(targets.value[2], 10)
    np.testing.assert_allclose(targets.advantage[2], 0)


def test_means_ignore_rows_that_do_not_count() -> None:
    x = jnp.array([1.0, jnp.nan, 5.0, jnp.inf])
    valid = jnp.array([True, False, True, False])
    value, gradient = jax.value_and_grad(lambda y: reductions.mean(y, valid))(x)
    assert value == 3
    assert np.array_equal(gradient, [0.5, 0, 0.5, 0])
    assert reductions.mean(x, jnp.zeros(4, bool)) == 0
    center, std = reductions.mean_and_std(x, valid)
    assert center == 3
    assert std == pytest.approx(np.std([1, 5], ddof=1))
    assert reductions.minimum(x, valid) == 1
    assert reductions.maximum(x, valid) == 5


def test_means_over_an_axis_weigh_by_rows() -> None:
    x, valid = np.arange(12.0).reshape(3, 4), np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], bool)

    def core(x: Any, valid: Any) -> tuple[Any, ...]:
        spread = reductions.mean_and_std(x, valid, "d")
        return (*spread, reductions.minimum(x, valid, "d"), reductions.maximum(x, valid, "d"))

    for value, expected in zip(
        jax.vmap(core, axis_name="d")(x, valid),
        (x[valid].mean(), x[valid].std(ddof=1), 0.0, 4.0),
        strict=True,
    ):
        np.testing.assert_allclose(value, np.full(3, expected), rtol=1e-6)


@pytest.mark.slow
def test_exploration_counts_only_actions_that_there_are() -> None:
    """Masked logits give what the same logits without those actions give, value and gradient."""
    logits = jax.random.normal(jax.random.PRNGKey(0), (6, 3))
    legal = jnp.array([True, False, True, True, False])

    def spread(few: jax.Array) -> jax.Array:
        return jnp.full((6, 5), MASKED).at[:, legal].set(few)

    valid = jnp.ones(6, bool)
    for full, masked in (
        (losses.entropy_loss, losses.entropy_loss),
        (
            losses.symmetric_kl_loss,
            functools.partial(losses.symmetric_kl_loss, legal=jnp.tile(legal, (6, 1))),
        ),
    ):
        expected = jax.value_and_grad(lambda x, loss=full: loss(x, valid, 0.1))(logits)
        got = jax.value_and_grad(lambda x, loss=masked: loss(spread(x), valid, 0.1))(logits)
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-4, atol=1e-7)
