"""Low-rank additions to linear layers (Hu et al. 2021): y = x W + (alpha / rank) (x A) B, with W
frozen.

    spec = lora.Spec(("*/attention/query", "*/attention/value"), rank=8)
    additions = lora.init(key, params, spec)
    with lora.added(additions, spec):
        model.prefill(params, ...)
    whole = lora.merged(params, additions, spec)

Additions are a tree of arrays:

    {"decoder/block_0/attention/query": {"a": [in, rank], "b": [rank, out]}}

Where tokens were added to the model, `new_tokens` beside the layers has additions to their rows of
the tables (`new_tokens.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.lm import linear, new_tokens
from motif_jax.lm.layers import Linear
from motif_jax.nets import products

Additions = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Spec:
    """Layers with an addition (`patterns`, see `linear.matching`), and its size: A has `rank`
    columns.
    """

    patterns: tuple[str, ...]
    rank: int
    alpha: float = 16.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise UserError(f"a rank of {self.rank}: must be at least 1")

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
    with new_tokens.added(rows), linear.computed_by(layer, layers):
        yield


def _divided(additions: Additions) -> tuple[Mapping[str, Any], dict[str, Mapping[str, Any]]]:
    """The additions to rows of new tokens, empty where there are none, and those to layers."""
    layers = {name: addition for name, addition in additions.items() if name != new_tokens.NAME}
    return additions.get(new_tokens.NAME, {}), layers


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
        leading[new_tokens.NAME] = {
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
    return new_tokens.merged(linear.replaced(params, merged_kernels), rows)
