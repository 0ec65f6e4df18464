"""Low-rank additions to linear layers (Hu et al. 2021): y = x W + (alpha / rank) (x A) B, with W
frozen.

    spec = lora.Spec(("*/attention/query", "*/attention/value"), rank=8)
    additions = lora.init(key, params, spec)
    with lora.added(additions, spec):
        model.prefill(params, ...)
    whole = lora.merged(params, additions, spec)

Additions are a tree of arrays:

    {"decoder/block_0/attention/query": {"a": [in, rank], "b": [rank, out]}}

Where tokens were added after a model's last one, `new_tokens` beside the layers has additions to
their rows of the tables: {"embedding": [N, D]} and, where the head has a table of its own,
{"head": [N, D]}, for the last N rows; they begin at zero (`init_rows`). Additions to layers cannot
teach a model a token that it has never seen: an embedding that no step changes stays where it
began.

Frozen kernels may have 8 or 4 bits (QLoRA, Dettmers et al. 2023). Each use of a layer decodes its
kernel, which is not kept. Codes have no gradient.

    kernels, rest = lora.split_quantised(params, "nf4", ("*/attention/*", "*/feed_forward/*"))
    with lora.added(additions, spec), lora.quantised(kernels):
        model.prefill(rest, ...)

* int8: one float32 scale for each output of a layer, the largest absolute weight over 127.
* nf4: 16 levels at the quantiles of a normal distribution (appendix E of the paper), two codes a
  byte, one float32 scale for every 64 weights of an output.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.lm import linear
from motif_jax.lm.layers import Linear
from motif_jax.lm.network import LanguageNetwork
from motif_jax.nets import products

Additions = Mapping[str, Mapping[str, Any]]
# The name of these additions beside those of layers.
NEW_TOKENS = "new_tokens"
_EMBEDDING = "embedding"
_HEAD = "head"

Rows = Mapping[str, Any]
# Precisions of a quantised base, and the inputs that share a scale of nf4.
QUANTISED = ("int8", "nf4")
QUANTISED_BLOCK = 64
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
QuantisedKernels = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Spec:
    """Layers with an addition (`patterns`, see `linear.matching`), and its size: A has `rank`
    columns.
    """

    patterns: tuple[str, ...]
    rank: int
    alpha: float = 16.0

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


# Of `difference`, whose numbers have their scale.
DIFFERENCE = Spec(("*",), rank=1, alpha=1.0)


def init(key: jax.Array, params: Any, spec: Spec) -> dict[str, dict[str, jax.Array]]:
    """Fresh additions to parameters or shapes, float32: A uniform as in the paper's code, B zero,
    so that training starts at the base.

    Raises:
      UserError: a pattern matches no layer.
    """
    kernels = linear.kernels(params)
    additions = {}
    for number, path in enumerate(linear.matching(params, spec.patterns)):
        inputs, outputs = kernels[path].shape
        # PyTorch's kaiming_uniform with a = sqrt(5), as in the paper's code.
        limit = inputs**-0.5
        layer_key = jax.random.fold_in(key, number)
        a = jax.random.uniform(layer_key, (inputs, spec.rank), minval=-limit, maxval=limit)
        additions["/".join(path)] = {"a": a, "b": jnp.zeros((spec.rank, outputs))}
    return additions


@contextlib.contextmanager
def added(additions: Additions, spec: Spec) -> Iterator[None]:
    """While active, layers and tables of all models use their additions; see
    `linear.computed_by`.
    """

    def layer(
        module: Linear, x: jax.Array, plain: Callable[[], jax.Array], addition: Any
    ) -> jax.Array:
        # x A first: of rank r, so that the addition costs r (in + out) a token and not in x out.
        low_rank = products.linear(x.astype(module.dtype), addition["a"].astype(module.dtype))
        # `plain` may be a quantised layer; `product` has the float32 sums of a head.
        return plain() + module.product(low_rank, addition["b"]) * spec.scale

    rows, layers = _divided(additions)
    with rows_added(rows), linear.computed_by(layer, layers):
        yield


def _divided(additions: Additions) -> tuple[Mapping[str, Any], dict[str, Mapping[str, Any]]]:
    """The additions to rows of new tokens, empty where there are none, and those to layers."""
    layers = {name: addition for name, addition in additions.items() if name != NEW_TOKENS}
    return additions.get(NEW_TOKENS, {}), layers


def difference(
    additions: Additions, others: Additions | None, spec: Spec
) -> dict[str, dict[str, np.ndarray]]:
    """What a model with `additions` has more than the same base with `others` (None: the base
    alone), as additions of twice the rank for `DIFFERENCE`, float32; both are of one `spec`.
    """
    rows, layers = _divided(additions)
    other_rows, other_layers = _divided(others or {})
    leading: dict[str, dict[str, np.ndarray]] = {}
    for name, addition in layers.items():
        columns, scaled = [addition["a"]], [spec.scale * addition["b"]]
        if name in other_layers:
            columns.append(other_layers[name]["a"])
            scaled.append(-spec.scale * other_layers[name]["b"])
        leading[name] = {
            "a": np.concatenate(columns, axis=1, dtype=np.float32),
            "b": np.concatenate(scaled, axis=0, dtype=np.float32),
        }
    if rows:
        leading[NEW_TOKENS] = {
            table: np.asarray(added_rows - other_rows.get(table, 0.0), np.float32)
            for table, added_rows in rows.items()
        }
    return leading


def merged(params: Any, additions: Additions, spec: Spec) -> Any:
    """Parameters with the additions merged in float32: numpy arrays of the kernels' dtype."""
    kernels = linear.kernels(params)
    rows, layers = _divided(additions)
    merged_kernels = {}
    for name, addition in layers.items():
        path = tuple(name.split("/"))
        kernel = np.asarray(kernels[path], np.float32)
        a = np.asarray(addition["a"], np.float32)
        b = np.asarray(addition["b"], np.float32)
        # Summed in float32, and rounded once.
        merged_kernels[path] = (kernel + spec.scale * (a @ b)).astype(kernels[path].dtype)
    return rows_merged(linear.replaced(params, merged_kernels), rows)


def init_rows(params: Any, count: int) -> dict[str, jax.Array]:
    """Additions of zero to the last `count` rows of a model's tables, float32."""
    width = params[_EMBEDDING].shape[1]
    names = (_EMBEDDING, _HEAD) if _HEAD in params else (_EMBEDDING,)
    return {name: jnp.zeros((count, width)) for name in names}


@contextlib.contextmanager
def rows_added(rows: Rows) -> Iterator[None]:
    """While active, all models read the last rows of their tables with these additions; without
    any, the tables as they are.

    Only the additions have gradients. The frozen tables are not copied, and no gradient of their
    size is computed.
    """
    if not rows:
        yield
        return

    def intercept(plain: Callable[..., Any], arguments: Any, keywords: Any, context: Any) -> Any:
        result = plain(*arguments, **keywords)
        module = context.module
        # Every call of every module comes here, blocks and layers included.
        if not isinstance(module, LanguageNetwork):
            return result
        if context.method_name == "table_rows":
            return result + _embedded(
                rows[_EMBEDDING], arguments[0], module.config.vocab_size, result.dtype
            )
        if context.method_name == "logits_by_token":
            raise ValueError("`logits_by_token` has no additions to tokens: merge them first")
        if context.method_name == "token_products":
            # A tied head is the embedding table, so that its additions count there, too.
            return _with_products(result, arguments[0], rows.get(_HEAD, rows[_EMBEDDING]))
        return result

    with nn.intercept_methods(intercept):
        yield


def _embedded(rows: jax.Array, tokens: jax.Array, vocab_size: int, dtype: Any) -> jax.Array:
    """The additions [..., D] to the embeddings of tokens int32 [...]; zero for tokens that are not
    new.
    """
    first = vocab_size - len(rows)
    # Old tokens read row 0 and are set to zero after it.
    chosen = jnp.take(rows, jnp.maximum(tokens - first, 0), axis=0)
    return jnp.where((tokens >= first)[..., None], chosen, 0.0).astype(dtype)


def _with_products(of_table: jax.Array, states: jax.Array, rows: jax.Array) -> jax.Array:
    """Products float32 [..., V] of states [..., D] with all rows, the last ones with their
    additions [N, D].
    """
    added_products = products.einsum_float32("...d,nd->...n", states, rows.astype(states.dtype))
    return of_table.at[..., -len(rows) :].add(added_products)


def rows_merged(params: Any, rows: Rows) -> Any:
    """Parameters with the additions in their tables: numpy arrays of the tables' dtype."""
    if not rows:
        return params
    changed = {**params, _EMBEDDING: _merged_table(params[_EMBEDDING], rows[_EMBEDDING])}
    if _HEAD in rows:
        kernel = np.asarray(params[_HEAD]["kernel"])
        changed[_HEAD] = {**params[_HEAD], "kernel": _merged_table(kernel.T, rows[_HEAD]).T}
    return changed


def _merged_table(table: Any, rows: Any) -> np.ndarray:
    table = np.array(table)
    # Rounded once, after the sum.
    last = table[-len(rows) :].astype(np.float32)
    table[-len(rows) :] = (last + np.asarray(rows, np.float32)).astype(table.dtype)
    return table


def encode_kernel(kernel: np.ndarray, kind: str) -> dict[str, np.ndarray]:
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
    blocks = kernel.reshape(-1, QUANTISED_BLOCK, kernel.shape[1])
    scales = np.maximum(np.abs(blocks).max(axis=1), np.finfo(np.float32).tiny)
    middles = (_NF4[1:] + _NF4[:-1]) / 2
    codes = (
        # The nearest level: it lies between the middles to its neighbours.
        np.searchsorted(middles, blocks / scales[:, None]).astype(np.uint8).reshape(kernel.shape)
    )
    return {"codes": codes[0::2] | codes[1::2] << 4, "scales": scales.astype(np.float32)}


def decode_kernel(encoded: Mapping[str, Any], dtype: Any = jnp.float32) -> jax.Array:
    """The kernel [in, out] of codes and scales."""
    codes = jnp.asarray(encoded["codes"])
    scales = jnp.asarray(encoded["scales"])
    if codes.dtype == jnp.int8:
        return (codes.astype(jnp.float32) * scales).astype(dtype)
    # A byte holds the codes of two successive inputs, the first in its low half.
    single_codes = jnp.stack([codes & 15, codes >> 4], axis=1).reshape(-1, codes.shape[1])
    levels = jnp.asarray(_NF4)[single_codes].reshape(-1, QUANTISED_BLOCK, codes.shape[1])
    return (levels * scales[:, None]).reshape(single_codes.shape).astype(dtype)


def split_quantised(
    params: Any, kind: str, patterns: Sequence[str]
) -> tuple[dict[str, dict[str, np.ndarray]], Any]:
    """Quantises the matching layers; returns their codes and scales, and the parameters without
    their kernels.

    Raises:
      UserError: a pattern matches no layer.
    """
    kernels = linear.kernels(params)
    paths = linear.matching(params, patterns)
    encoded = {"/".join(path): encode_kernel(np.asarray(kernels[path]), kind) for path in paths}
    return encoded, linear.replaced(params, dict.fromkeys(paths))


def join_quantised(kernels: QuantisedKernels, rest: Any) -> Any:
    """Reverts `split_quantised`; quantised kernels become float32 numpy arrays."""
    decoded = {}
    for name, encoded in kernels.items():
        decoded[tuple(name.split("/"))] = np.asarray(decode_kernel(encoded))
    return linear.replaced(rest, decoded)


def quantised(kernels: QuantisedKernels) -> AbstractContextManager[None]:
    """While active, layers of all models use these kernels instead of theirs; see
    `linear.computed_by`.
    """

    def layer(
        module: Linear, x: jax.Array, plain: Callable[[], jax.Array], encoded: Any
    ) -> jax.Array:
        # Not `plain`, which would look for the kernel that `split_quantised` took out. The gradient
        # goes to x alone.
        y = module.product(x, jax.lax.stop_gradient(decode_kernel(encoded, module.dtype)))
        if module.use_bias:
            y = y + jnp.asarray(module.get_variable("params", "bias"), y.dtype)
        return y

    return linear.computed_by(layer, kernels)
