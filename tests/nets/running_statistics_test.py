"""The running scale of observed numbers: what it computes, what it leaves alone, and what it makes
of an agent.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.nets.agent import AgentNetwork, make_agent_network
from motif_jax.nets.config import GameNetwork
from motif_jax.nets.policy import with_input_statistics
from motif_jax.nets.running_statistics import RunningScale, with_statistics

SPEC = EnvironmentSpec(
    {
        "codes": ArraySpec((3,), "uint8"),
        "position": ArraySpec((2,), "float32"),
        "speed": ArraySpec((), "int32"),
    },
    num_actions=4,
)
FRESH = {
    "shift": jnp.zeros(2),
    "mean": jnp.zeros(2),
    "variance": jnp.ones(2),
    "rows": jnp.zeros(()),
}
# A unit far from 1, and an offset: what a network without a scale cannot learn from.
UNIT = 1000.0
OFFSET = 5000.0


@functools.cache
def network(normalisation: str = "running") -> AgentNetwork:
    sizes = {"flat_sizes": (8,), "hidden_size": 8}
    return make_agent_network(GameNetwork(observation_normalisation=normalisation, **sizes), SPEC)


def observations(seed: int, steps: int = 5, count: int = 6) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "codes": rng.integers(0, 2, (steps, count, 3), np.uint8),
        "position": rng.normal(2.0, 3.0, (steps, count, 2)).astype(np.float32),
        "speed": rng.integers(-40, 41, (steps, count), np.int32),
    }


def statistics_of(
    rows: np.ndarray, params: Mapping[str, jax.Array] = FRESH, rest: np.ndarray | None = None
) -> dict[str, jax.Array]:
    _, collections = RunningScale().apply({"params": params}, rows, rest, mutable=["statistics"])
    return dict(collections["statistics"])


def logits_of(params: object, rows: Mapping[str, np.ndarray], of: AgentNetwork) -> np.ndarray:
    first = np.zeros(rows["speed"].shape, bool)
    state = of.initial_state(first.shape[1])
    logits, _, _ = of.apply(params, rows, state, first)
    return np.asarray(logits)


def test_statistics_do_not_depend_on_the_sizes_of_calls() -> None:
    rng = np.random.default_rng(3)
    parts = [rng.normal(7.0, 0.3, (size, 2)).astype(np.float32) for size in (1, 30, 4)]

    running = FRESH
    for part in parts:
        running = with_statistics(running, statistics_of(part, running))

    rows = np.concatenate(parts)
    np.testing.assert_allclose(running["shift"] + running["mean"], rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(running["variance"], rows.var(axis=0), rtol=1e-3)
    assert running["rows"] == 35


@pytest.mark.parametrize("constant", [5000.1, 100_000.3, 1_234_567.0, 5.3])
def test_a_constant_is_small_although_its_mean_is_rounded(constant: float) -> None:
    rows = np.full((1000, 2), constant, np.float32)

    scaled = RunningScale().apply({"params": with_statistics(FRESH, statistics_of(rows))}, rows)

    assert np.abs(scaled).max() < 0.3


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
def test_numbers_beside_a_large_offset_have_mean_zero_and_deviation_one(offset: float) -> None:
    rng = np.random.default_rng(0)
    running = FRESH
    for _ in range(50):
        rows = (offset + rng.integers(0, 2, (64, 2))).astype(np.float32)
        running = with_statistics(running, statistics_of(rows, running))

    numbers = np.array([[offset] * 2, [offset + 1] * 2], np.float32)
    scaled = RunningScale().apply({"params": running}, numbers)
    np.testing.assert_allclose(scaled, [[-1, -1], [1, 1]], atol=0.05)


def test_numbers_that_float32_rounds_come_in_two_parts() -> None:
    """Seconds since 1970: neighbours in float32 are 128 apart."""
    rng = np.random.default_rng(0)
    running = FRESH
    for _ in range(50):
        exact = 1.7e9 + rng.integers(0, 2, (64, 2))
        rounded = exact.astype(np.float32)
        rest = (exact - rounded).astype(np.float32)
        running = with_statistics(running, statistics_of(rounded, running, rest))

    exact = 1.7e9 + np.array([[0, 1.0]])
    rounded = exact.astype(np.float32)
    rest = (exact - rounded).astype(np.float32)
    scaled = RunningScale().apply({"params": running}, rounded, rest)

    np.testing.assert_allclose(scaled, [[-1, 1]], atol=0.05)


def test_tiny_numbers_have_deviation_one() -> None:
    rows = np.random.default_rng(0).normal(0, 1e-9, (200, 2)).astype(np.float32)

    scaled = RunningScale().apply({"params": with_statistics(FRESH, statistics_of(rows))}, rows)

    np.testing.assert_allclose(np.std(scaled, axis=0), 1.0, rtol=1e-3)


def test_small_numbers_stay_as_they_are_before_the_first_update() -> None:
    rows = np.array([[1.0, -2.5], [0.0, 9.0]], np.float32)

    scaled = RunningScale().apply({"params": FRESH}, rows)

    np.testing.assert_allclose(scaled, rows, rtol=1e-6)


def test_the_first_calls_rows_have_mean_zero_and_deviation_one() -> None:
    rows = np.random.default_rng(0).normal(-300.0, 20.0, (200, 2)).astype(np.float32)

    scaled = RunningScale().apply({"params": with_statistics(FRESH, statistics_of(rows))}, rows)

    np.testing.assert_allclose(np.mean(scaled, axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(np.std(scaled, axis=0), 1.0, rtol=1e-4)


def test_constant_numbers_become_zero_and_outliers_are_clipped() -> None:
    rows = np.array([[4.0, 1.0], [4.0, 3.0]], np.float32)
    params = with_statistics(FRESH, statistics_of(rows))

    scaled = RunningScale().apply(
        {"params": params}, np.array([[4.0, 1e6], [4.0, -1e6]], np.float32)
    )

    np.testing.assert_array_equal(scaled, [[0.0, 10.0], [0.0, -10.0]])


@pytest.mark.extra
def test_an_agent_is_independent_of_its_numbers_units() -> None:
    rows = observations(seed=1)
    other_units = {**rows, "position": rows["position"] * UNIT + OFFSET, "speed": rows["speed"] * 7}
    fresh = network().init(jax.random.key(0))

    logits = logits_of(with_input_statistics(network(), fresh, rows), rows, network())
    in_other_units = logits_of(
        with_input_statistics(network(), fresh, other_units), other_units, network()
    )

    np.testing.assert_allclose(in_other_units, logits, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_bytes_are_not_scaled_and_weights_stay() -> None:
    fresh = network().init(jax.random.key(0))

    before = flatten_dict(fresh)
    after = flatten_dict(with_input_statistics(network(), fresh, observations(seed=1)))

    moved = {path[-2:] for path in after if not np.array_equal(after[path], before[path])}
    names = ("shift", "variance", "rows")
    assert moved >= {(scale, name) for scale in ("scale0", "scale1") for name in names}
    assert {scale for scale, _ in moved} == {"scale0", "scale1"}
    np.testing.assert_allclose(
        after["actor", "encoder", "scale0", "shift"],
        observations(seed=1)["position"].mean((0, 1)),
        rtol=1e-5,
    )


@pytest.mark.extra
def test_devices_with_parts_of_rows_agree_on_all_statistics() -> None:
    rows = observations(seed=2)
    fresh = network().init(jax.random.key(0))
    expected = with_input_statistics(network(), fresh, rows)
    parts = {name: jnp.stack(jnp.split(jnp.asarray(x), 2, axis=1)) for name, x in rows.items()}

    of_devices = jax.vmap(
        lambda part: with_input_statistics(network(), fresh, part, "device"), axis_name="device"
    )(parts)

    of_first_device = jax.tree.map(lambda x: x[0], of_devices)
    chex.assert_trees_all_close(of_first_device, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_statistics_have_no_gradient() -> None:
    rows = observations(seed=1)
    params = with_input_statistics(network(), network().init(jax.random.key(0)), rows)

    state = network().initial_state(6)
    first = np.zeros((5, 6), bool)

    def squares(tree: object) -> jax.Array:
        logits, _, _ = network().apply(tree, rows, state, first)
        return jnp.square(logits).sum()

    gradients = flatten_dict(jax.grad(squares)(params))

    of_statistics = {path: leaf for path, leaf in gradients.items() if path[-1] in FRESH}
    assert len(of_statistics) == 8
    assert not any(np.any(leaf) for leaf in of_statistics.values())
    assert any(np.any(leaf) for leaf in gradients.values())


@pytest.mark.slow
def test_without_a_scale_nothing_is_tracked() -> None:
    plain = network("none")
    params = plain.init(jax.random.key(0))

    assert not [path for path in flatten_dict(params) if path[-1] in FRESH]
    assert with_input_statistics(plain, params, observations(seed=1)) is params
