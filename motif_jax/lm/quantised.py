"""Frozen kernels in 8 or 4 bits, as a base of low-rank additions (QLoRA, Dettmers et al. 2023).

    kernels, rest = quantised.split(params, "nf4", ("*/attention/*", "*/feed_forward/*"))
    with quantised.read(kernels):  # inside `lora.added`, which adds to the layers' products
        model.prefill(rest, ...)

Each use of a layer decodes its kernel, which is not kept. Codes have no gradient.

* int8: one float32 scale for each output of a layer, the largest absolute weight over 127.
* nf4: 16 levels at the quantiles of a normal distribution (appendix E of the paper), two codes a
  byte, one float32 scale for every 64 weights of an output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.lm import linear
from motif_jax.lm.layers import Linear

KINDS = ("int8", "nf4")
BLOCK = 64
# The published table: 0 exactly, 8 levels above and 7 below.
_NF4 = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip

# Codes and scales by the layer's path. The codes' dtype tells the kind: int8, or uint8 for two
# codes of nf4.
Kernels = Mapping[str, Mapping[str, Any]]


def encode(kernel: np.ndarray, kind: str) -> dict[str, np.ndarray]:
    """Codes and scales of a kernel [in, out].

    int8: `codes` int8 [in, out], `scales` float32 [out]. nf4, for multiples of 64 inputs: uint8
    [in / 2, out] and float32 [in / 64, out].
    """
    kernel = np.asarray(kernel, np.float32)
    if kind == "int8":
        # A scale of 0 would divide by 0.
        scales = np.maximum(np.abs(kernel).max(axis=0), np.finfo(np.float32).tiny) / 127
        return {
            "codes": np.rint(kernel / scales).astype(np.int8),
            "scales": scales.astype(np.float32),
        }
    # 64 successive inputs of one output share a scale: [in / 64, 64, out].
    blocks = kernel.reshape(-1, BLOCK, kernel.shape[1])
    scales = np.maximum(np.abs(blocks).max(axis=1), np.finfo(np.float32).tiny)
    middles = (_NF4[1:] + _NF4[:-1]) / 2
    codes = (
        # The nearest level: it lies between the middles to its neighbours.
        np.searchsorted(middles, blocks / scales[:, None]).astype(np.uint8).reshape(kernel.shape)
    )
    return {"codes": codes[0::2] | codes[1::2] << 4, "scales": scales.astype(np.float32)}


def decode(encoded: Mapping[str, Any], dtype: Any = jnp.float32) -> jax.Array:
    """The kernel [in, out] of codes and scales."""
    codes = jnp.asarray(encoded["codes"])
    scales = jnp.asarray(encoded["scales"])
    if codes.dtype == jnp.int8:
        return (codes.astype(jnp.float32) * scales).astype(dtype)
    # A byte holds the codes of two successive inputs, the first in its low half.
    single_codes = jnp.stack([codes & 15, codes >> 4], axis=1).reshape(-1, codes.shape[1])
    levels = jnp.asarray(_NF4)[single_codes].reshape(-1, BLOCK, codes.shape[1])
    return (levels * scales[:, None]).reshape(single_codes.shape).astype(dtype)


def split(
    params: Any, kind: str, patterns: Sequence[str]
) -> tuple[dict[str, dict[str, np.ndarray]], Any]:
    """Quantises the matching layers; returns their codes and scales, and the parameters without
    their kernels.

    Raises:
      UserError: a pattern matches no layer.
    """
    kernels = linear.kernels(params)
    paths = linear.matching(params, patterns)
    encoded = {"/".join(path): encode(np.asarray(kernels[path]), kind) for path in paths}
    return encoded, linear.replaced(params, dict.fromkeys(paths))


def joined(kernels: Kernels, rest: Any) -> Any:
    """Reverts `split`; quantised kernels become float32 numpy arrays."""
    decoded = {}
    for name, encoded in kernels.items():
        decoded[tuple(name.split("/"))] = np.asarray(decode(encoded))
    return linear.replaced(rest, decoded)


def read(kernels: Kernels) -> AbstractContextManager[None]:
    """While active, layers of all models use these kernels instead of theirs; see
    `linear.computed_by`.
    """

    def layer(
        module: Linear, x: jax.Array, plain: Callable[[], jax.Array], encoded: Any
    ) -> jax.Array:
        # Not `plain`, which would look for the kernel that `split` took out. The gradient goes to x
        # alone.
        y = module.product(x, jax.lax.stop_gradient(decode(encoded, module.dtype)))
        if module.use_bias:
            y = y + jnp.asarray(module.get_variable("params", "bias"), y.dtype)
        return y

    return linear.computed_by(layer, kernels)
