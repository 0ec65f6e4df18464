"""Matrix products: the same values and gradients in both forms, and which form a machine
chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm.config import parse
from motif_jax.lm.layers import FeedForward
from motif_jax.lm.model import LanguageModel
from motif_jax.nets import products
from motif_jax.nets.cores import Core
from motif_jax.nets.layers import Dense
from tests import lowering

LINEAR = "...i,io->...o"
HEADS_OF_PREFIX = "bgnhsk,bgkd->bgnhsd"
HEADS = "bgnhsk,bngkd->bgnhsd"
SHAPES = {
    LINEAR: ((2, 3, 160), (160, 8)),
    HEADS_OF_PREFIX: ((2, 1, 3, 2, 4, 50), (2, 1, 50, 8)),
    HEADS: ((2, 1, 3, 2, 4, 50), (2, 3, 1, 50, 8)),
}
TINY_LLAMA = {
    "model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True, "max_position_embeddings": 32,
}  # fmt: skip


@pytest.fixture(params=(False, True), ids=("plain", "float32_sums"))
def float32_sums(request, monkeypatch):
    """Any machine computes both forms, whichever it would choose."""
    monkeypatch.setattr(
        products, "sums_in_float32", lambda dtype: request.param and dtype == jnp.bfloat16
    )
    return request.param


def product(letters, x, y):
    return products.linear(x, y) if letters == LINEAR else products.einsum(letters, x, y)


def normal(rng, shape):
    return jnp.asarray(rng.normal(size=shape), jnp.bfloat16)


def rounded(array):
    return array.astype(jnp.bfloat16).astype(jnp.float32)


@pytest.mark.parametrize("letters", SHAPES)
def test_values_and_gradients_are_sums_of_float32_rounded_once(letters, float32_sums):
    rng = np.random.default_rng(0)
    inputs = [normal(rng, shape) for shape in SHAPES[letters]]
    wide_inputs = [array.astype(jnp.float32) for array in inputs]
    exact, transpose = jax.vjp(lambda x, y: jnp.einsum(letters, x, y), *wide_inputs)
    value, pullback = jax.vjp(lambda x, y: product(letters, x, y), *inputs)
    cotangent = normal(rng, exact.shape)
    # Another order of summation may round to the neighbour, which is 1/128 away at most.
    close = {"rtol": 1 / 128, "atol": 1e-3}
    assert value.dtype == jnp.bfloat16
    np.testing.assert_allclose(value.astype(jnp.float32), rounded(exact), **close)
    for gradient, exact_gradient in zip(
        pullback(cotangent), transpose(cotangent.astype(jnp.float32)), strict=True
    ):
        assert gradient.dtype == jnp.bfloat16
        np.testing.assert_allclose(gradient.astype(jnp.float32), rounded(exact_gradient), **close)


def test_sums_can_be_the_result(float32_sums):
    rng = np.random.default_rng(0)
    states = normal(rng, (3, 160))
    table = normal(rng, (20, 160))
    exact = jnp.einsum("bd,vd->bv", states.astype(jnp.float32), table.astype(jnp.float32))
    value = products.einsum_float32("bd,vd->bv", states, table)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, exact, rtol=1e-4, atol=1e-4)

    def loss(x, y):
        return jax.nn.log_softmax(products.einsum_float32("bd,vd->bv", x, y))[:, 0].sum()

    gradients = jax.grad(loss, argnums=(0, 1))(states, table)
    wide = jax.grad(loss, argnums=(0, 1))(states.astype(jnp.float32), table.astype(jnp.float32))
    for gradient, expected in zip(gradients, wide, strict=True):
        apart = jnp.linalg.norm(gradient.astype(jnp.float32) - expected) / jnp.linalg.norm(expected)
        assert apart < 0.01


def float32_factors(outputs: Callable[[Any], Any], params: Any) -> list[tuple[str, ...]]:
    """The products of float32 arrays in the program of the gradient of `outputs`."""

    def loss(params: Any) -> jax.Array:
        leaves = jax.tree.leaves(outputs(params))
        return jnp.stack([jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in leaves]).sum()

    program = lowering.lowered(jax.jit(jax.grad(loss)), params)
    types = lowering.products(program, "dot_general")
    assert types
    return [
        of_product for of_product in types if "f32" in "".join(of_product[:2]).replace("bf16", "")
    ]


def test_a_language_model_multiplies_bfloat16_alone(float32_sums):
    model = LanguageModel(parse(TINY_LLAMA), jnp.bfloat16)
    tokens = jnp.ones((2, 8), jnp.int32)
    factors = float32_factors(
        lambda params: model.network.apply({"params": params}, tokens),
        model.init(jax.random.key(0)),
    )
    # The gradients of scores and of the vocabulary, two products each, are jax's own where float32
    # is as quick.
    assert len(factors) == (0 if float32_sums else 4)


def test_an_agent_s_layers_multiply_bfloat16_alone(float32_sums):
    core = Core("gru", 16, dtype=jnp.bfloat16)
    rows = (jnp.ones((3, 2, 8)), jnp.zeros((2, 16)), jnp.zeros((3, 2), bool))
    assert not float32_factors(
        lambda params: core.apply(params, *rows), core.init(jax.random.key(0), *rows)
    )
    layer = Dense(16, jnp.bfloat16)
    assert not float32_factors(
        lambda params: layer.apply(params, rows[0]), layer.init(jax.random.key(0), rows[0])
    )


def test_an_activation_in_float32_keeps_its_input_alone():
    """Four arrays of the block's inner width: both products, and what multiplies them; the
    activation's float32 steps are not kept.
    """
    block = FeedForward(parse(TINY_LLAMA), bias=False, dtype=jnp.bfloat16)
    x = jnp.ones((2, 1, 8, 16), jnp.bfloat16)
    params = block.init(jax.random.key(0), x)
    _, pullback = jax.vjp(lambda params, x: block.apply(params, x), params, x)
    inner = [leaf for leaf in jax.tree.leaves(pullback) if leaf.shape == (2, 1, 8, 24)]
    assert 2 <= len(inner) <= 4
    assert {leaf.dtype for leaf in inner} == {jnp.dtype(jnp.bfloat16)}


@pytest.fixture
def cpu_info(tmp_path, monkeypatch):
    """The file that lists the processor's instructions, empty."""
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(products, "CPU_INFO", info)
    products.has_bfloat16_products.cache_clear()
    yield info
    products.has_bfloat16_products.cache_clear()


@pytest.mark.parametrize(
    ("flags", "multiplies"),
    [
        (None, False),
        ("avx512f avx512_fp16", False),
        ("amx_bf16 avx512_fp16", True),
        ("sse avx512_bf16", True),
    ],
)
def test_the_instructions_are_those_that_the_system_lists(cpu_info, flags, multiplies):
    if flags is not None:
        cpu_info.write_text(f"flags\t\t: fpu {flags}\nbugs\t\t:\n")
    on_cpu = jax.default_backend() == "cpu"
    assert products.sums_in_float32(jnp.dtype(jnp.bfloat16)) == (multiplies and on_cpu)
    assert not products.sums_in_float32(jnp.dtype(jnp.float32))
