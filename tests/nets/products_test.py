"""Matrix products: the same value and gradients whichever way a machine computes them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.nets import products

LINEAR = "...i,io->...o"
HEADS_OF_PREFIX = "bgnhsk,bgkd->bgnhsd"
HEADS = "bgnhsk,bngkd->bgnhsd"
SHAPES = {
    LINEAR: ((2, 3, 16), (16, 8)),
    HEADS_OF_PREFIX: ((2, 1, 3, 2, 4, 5), (2, 1, 5, 8)),
    HEADS: ((2, 1, 3, 2, 4, 5), (2, 3, 1, 5, 8)),
}


@pytest.fixture(params=(False, True), ids=("as_asked", "in_float32"))
def wide(request, monkeypatch):
    """Any machine computes both ways, whichever it would choose."""
    monkeypatch.setattr(products, "sums_in_float32", lambda dtype: request.param and dtype == jnp.bfloat16)
    return request.param


def product(letters, x, y):
    return products.linear(x, y) if letters == LINEAR else products.einsum(letters, x, y)


@pytest.mark.parametrize("letters", SHAPES)
def test_values_and_gradients_are_those_of_float32_rounded_once(letters, wide):
    rng = np.random.default_rng(0)
    # Whole numbers: their products and sums are exact in float32, and in bfloat16 up to 256.
    inputs = [jnp.asarray(rng.integers(-2, 3, shape), jnp.bfloat16) for shape in SHAPES[letters]]
    weights = jnp.asarray(rng.integers(-1, 2, jnp.einsum(letters, *inputs).shape), jnp.bfloat16)

    def loss(x, y):
        return (product(letters, x, y) * weights).astype(jnp.float32).sum()

    def exact_loss(x, y):
        return (jnp.einsum(letters, x, y) * weights.astype(jnp.float32)).sum()

    exact_inputs = [array.astype(jnp.float32) for array in inputs]
    value = product(letters, *inputs)
    assert value.dtype == jnp.bfloat16
    np.testing.assert_array_equal(value.astype(jnp.float32), jnp.einsum(letters, *exact_inputs))
    gradients = jax.grad(loss, argnums=(0, 1))(*inputs)
    exact_gradients = jax.grad(exact_loss, argnums=(0, 1))(*exact_inputs)
    for gradient, exact in zip(gradients, exact_gradients, strict=True):
        assert gradient.dtype == jnp.bfloat16
        np.testing.assert_array_equal(gradient.astype(jnp.float32), exact)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_only_bfloat16_is_written_as_sums_of_float32(dtype, wide):
    """With gradients, none of whose products is one of float32 with bfloat16."""
    x = jnp.ones((4, 16), dtype)
    kernel = jnp.ones((16, 8), dtype)
    program = jax.jit(jax.grad(lambda x, y: products.linear(x, y).sum(), argnums=(0, 1))).lower(x, kernel)
    lines = [line for line in program.as_text().splitlines() if "dot_general" in line]
    assert lines
    for line in lines:
        inputs, output = line.split(" : ")[-1].split(" -> ")
        assert ("bf16" in inputs) == (dtype == jnp.bfloat16)
        assert ("xf32" in inputs) == (dtype == jnp.float32)
        assert ("xf32" in output) == (wide or dtype == jnp.float32)


def test_the_units_are_those_that_the_system_lists(tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(products, "_CPU_INFO", info)
    for flags, expected in (("avx512_bf16", False), ("amx_bf16 avx512_fp16", True), ("sse amx_bf16", True)):
        products._has_bfloat16_units.cache_clear()
        info.write_text(f"flags\t\t: fpu {flags}\nbugs\t\t:\n")
        assert products._has_bfloat16_units() == expected
        assert products.sums_in_float32(jnp.bfloat16) == (expected and jax.default_backend() == "cpu")
        assert not products.sums_in_float32(jnp.float32)
    info.unlink()
    products._has_bfloat16_units.cache_clear()
    assert not products._has_bfloat16_units()
    products._has_bfloat16_units.cache_clear()
