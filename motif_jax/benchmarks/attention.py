"""Measures attention with its gradient: queries a second, against `jax.nn.dot_product_attention`.

Shapes are those of a T5 encoder: every head has a bias of its own, which is learned. Both sides run
in turns with the same inputs. On a GPU (`configs/benchmark.py:attention_gpu`) the other side is
cuDNN's fused kernel: its ratio says whether `lm.attention.attend` should call it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, print_early, result
from motif_jax.core import config as checks
from motif_jax.lm.attention import Keys, attend

# As `jax.nn.dot_product_attention` has them.
Implementation = Literal["xla", "cudnn"]
# Flan-T5-large with the prompts of `language_update_gpu`.
GPU_SIZE = {"batch_size": 64, "heads": 16, "dtype": "bfloat16", "implementation": "cudnn"}


def options() -> ConfigDict:
    """Rows at once, their tokens, heads, width of a head, and the implementation beside ours."""
    return ConfigDict(
        {
            "batch_size": 8,
            "tokens": 400,
            "heads": 6,
            "head_width": 64,
            "dtype": "float32",
            "implementation": "xla",
            "baseline": True,
            "seconds": 1.0,
        }
    )


def check(config: ConfigDict) -> None:
    """Raises UserError for an unknown implementation."""
    checks.choice(config, "options.implementation", get_args(Implementation))


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    has_gpu = jax.default_backend() == "gpu"
    checks.require(
        chosen.implementation != "cudnn" or has_gpu,
        "options.implementation",
        chosen.implementation,
        "xla without a GPU",
    )
    inputs = _inputs(config)
    queries = chosen.batch_size * chosen.tokens
    calls = {"ours": _language.compiled(with_gradient(ours), *inputs)}
    first = _language.first_step_seconds(calls["ours"])
    if chosen.baseline:
        # A device may have no such kernel, which ends the run.
        rate = _language.rate(calls["ours"], queries, chosen.seconds)()
        print_early(config, "queries/s", [rate], first_step_seconds=first)
        calls["other"] = _language.compiled(with_gradient(of_jax(chosen.implementation)), *inputs)
    outputs = {name: call() for name, call in calls.items()}
    rates = _language.rates(config, calls, queries)
    print_early(config, "queries/s", rates["ours"], first_step_seconds=first)
    apart = None
    if "other" in outputs:
        apart = _greatest_difference(outputs["ours"], outputs["other"])
    return result(
        config,
        "queries/s",
        rates["ours"],
        f"jax.nn.dot_product_attention, implementation={chosen.implementation}",
        rates.get("other"),
        first_step_seconds=first,
        apart=apart,
        threads=_language.usable_cores(),
    )


def ours(query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array) -> jax.Array:
    """`attend` of queries, keys and values [B, S, H, D] with a bias [1, H, S, S]."""
    # `attend` has an axis of branches behind the batch, here of size 1.
    keys = Keys(key.swapaxes(1, 2), value.swapaxes(1, 2), bias[:, None])
    return attend(query[:, None], [keys], query.shape[-1] ** -0.5)[:, 0]


def of_jax(implementation: Implementation) -> Callable[..., jax.Array]:
    """The same by jax's function, whose bias has the dtype of the queries."""

    def call(query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(
            query, key, value, bias.astype(query.dtype), implementation=implementation
        )

    return call


def with_gradient(attention: Callable[..., jax.Array]) -> Callable[..., Any]:
    """A function of queries, keys, values and bias: the attention, and the gradient of the mean of
    its squares for all four.
    """

    def loss(*inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        attended = attention(*inputs)
        return jnp.square(attended.astype(jnp.float32)).mean(), attended

    return jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True)


def _inputs(config: ConfigDict) -> list[jax.Array]:
    """Random queries, keys and values [B, S, H, D], and a bias float32 [1, H, S, S]."""
    chosen = config.options
    rng = np.random.default_rng(config.seed)
    shape = (chosen.batch_size, chosen.tokens, chosen.heads, chosen.head_width)
    inputs = [jnp.asarray(rng.standard_normal(shape), chosen.dtype) for _ in range(3)]
    bias_shape = (1, chosen.heads, chosen.tokens, chosen.tokens)
    return [*inputs, jnp.asarray(rng.standard_normal(bias_shape), jnp.float32)]


def _greatest_difference(outputs: Any, others: Any) -> float:
    """Of attention and gradients, as a share of the greatest number of each array."""
    shares = []
    for array, other in zip(jax.tree.leaves(outputs), jax.tree.leaves(others), strict=True):
        array = np.asarray(array, np.float32)
        difference = np.abs(array - np.asarray(other, np.float32)).max()
        shares.append(float(difference / np.abs(array).max()))
    return max(shares)
