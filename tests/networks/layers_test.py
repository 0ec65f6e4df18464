"""Recurrent layers, windows of glyphs and their convolution by a table, against plain numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.networks import glyphs
from motif_jax.networks.cores import Core, state_size
from tests import plain_layers

STEPS, ROWS, INPUTS, HIDDEN, LAYERS = 4, 2, 5, 3, 2


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("steps", [STEPS, 1])
def test_cores_are_pytorchs_layers_with_a_fresh_state_at_the_start_of_an_episode(
    kind: str, steps: int
) -> None:
    draws, core = np.random.default_rng(0), Core(kind, HIDDEN, LAYERS)
    x = draws.normal(size=(steps, ROWS, INPUTS))
    first = np.array([[False, True], [False, False], [True, False], [False, False]])[:steps]
    states = draws.normal(size=(1 if kind == "gru" else 2, LAYERS, ROWS, HIDDEN))
    given = np.moveaxis(states, 2, 0).reshape(ROWS, -1)
    assert given.shape[1] == state_size(kind, HIDDEN, LAYERS)
    shapes = jax.eval_shape(core.init, jax.random.key(0), x, given, first)["params"]
    params = jax.tree.map(lambda leaf: draws.normal(size=leaf.shape), shapes)
    outputs, final = jax.jit(core.apply)({"params": params}, x, given, first)
    for t in range(steps):
        inputs = x[t]
        states = np.where(first[t][:, None], 0.0, states)
        for place in range(LAYERS):
            name = kind + (str(place + 1) if place else "")
            plain = plain_layers.gru if kind == "gru" else plain_layers.lstm
            states[:, place] = plain(inputs, *states[:, place], params, name)
            inputs = states[0, place]
        np.testing.assert_allclose(outputs[t], inputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(final, np.moveaxis(states, 2, 0).reshape(ROWS, -1), rtol=1e-4, atol=1e-5)


def test_without_a_core_features_pass() -> None:
    x, state = jnp.ones((2, 1, 3)), jnp.ones((1, 1))
    outputs, final = Core("none", 8).apply({}, x, state, jnp.ones((2, 1), bool))
    assert (outputs is x, final is state, state_size("none", 8, 2)) == (True, True, 1)


def test_windows_lie_round_the_hero_and_are_blank_outside_of_the_map() -> None:
    maps = np.arange(1, 2 * 21 * 79 + 1, dtype=np.int16).reshape(2, 21, 79)
    crop, interpolated = (jax.jit(f, static_argnums=3) for f in (glyphs.crop, glyphs.crop_interpolated))
    found = crop(jnp.asarray(maps), jnp.array([0, 78]), jnp.array([20, 3]), 4)
    around = np.pad(maps, ((0, 0), (4, 4), (4, 4)))
    np.testing.assert_array_equal(found[0], around[0, 22:26, 2:6])
    np.testing.assert_array_equal(found[1], around[1, 5:9, 80:84])
    # A quarter right and half down: of the four corners these shares.
    between = interpolated(jnp.asarray(maps), jnp.array([5.25, 0]), jnp.array([7.5, 0]), 2)
    corners = maps[0, 6:9, 4:7].astype(np.float64)
    across = 0.75 * corners[:, :2] + 0.25 * corners[:, 1:]
    np.testing.assert_array_equal(between[0], np.round(0.5 * across[:2] + 0.5 * across[1:]))


@pytest.mark.parametrize("stride", [1, 2])
def test_glyphs_are_convolved_by_a_table(stride: int) -> None:
    draws = np.random.default_rng(1)
    cells, table, kernel = (
        draws.integers(0, 7, (2, 5, 4)),
        draws.normal(size=(7, 3)),
        draws.normal(size=(3, 3, 3, 2)),
    )
    found = glyphs.convolve_embedded(*map(jnp.asarray, (cells, table, kernel)), stride)
    drawn = np.pad(table[cells], ((0, 0), (1, 1), (1, 1), (0, 0)))
    for row, column in np.ndindex(found.shape[1:3]):
        top, left = row * stride, column * stride
        expected = np.einsum("nije,ijeo->no", drawn[:, top : top + 3, left : left + 3], kernel)
        np.testing.assert_allclose(found[:, row, column], expected, rtol=1e-4, atol=1e-5)
    assert found.shape[1:3] == (-(-5 // stride), -(-4 // stride))
