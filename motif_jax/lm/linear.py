"""Replaces the computation of linear layers (low-rank additions, quantised kernels) without changing the networks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from typing import Any

import flax.linen as nn
import jax
from flax.traverse_util import flatten_dict, unflatten_dict

from motif_jax.core.errors import UserError

# Names of a linear layer from the top: ('decoder', 'block_0', 'attention', 'query').
Path = tuple[str, ...]
# (module, x, plain) -> y; `plain()` computes the layer as it is.
Layer = Callable[[nn.Dense, jax.Array, Callable[[], jax.Array]], jax.Array]


def computed_by(layer: Layer) -> AbstractContextManager[None]:
    """While active, linear layers return `layer(module, x, plain)`; of several the first entered is called first, its `plain` is the next.

    Enter it inside the function that is transformed (grad, jit), not round it: it acts while the model is traced.
    """

    def intercept(plain: Callable[..., Any], given: Any, named: Any, context: Any) -> Any:
        if not isinstance(context.module, nn.Dense) or context.method_name != "__call__":
            return plain(*given, **named)
        return layer(context.module, given[0], functools.partial(plain, *given, **named))

    return nn.intercept_methods(intercept)


def kernels(params: Any) -> dict[Path, Any]:
    """The kernels [in, out] of all linear layers of a model, by the path of their layer."""
    return {path[:-1]: value for path, value in flatten_dict(params).items() if path[-1] == "kernel"}


def matching(params: Any, patterns: Sequence[str]) -> list[Path]:
    """The linear layers that any pattern matches, in the order of the model; `params` may be shapes.

    Patterns are paths joined by /, with * for any text: '*/attention/query', 'decoder/block_0/*', '*'.

    Raises:
      UserError: a pattern matches no layer.
    """
    there = {"/".join(path): path for path in kernels(params)}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in there):
            ends = sorted({"/".join(("*", *path[-2:])) for path in there.values()})
            raise UserError(
                f"config.lora.patterns: pattern {pattern!r} matches no linear layer; there are {', '.join(ends)}"
            )
    return [path for name, path in there.items() if any(fnmatchcase(name, one) for one in patterns)]


def replaced(params: Any, changed: Mapping[Path, Any]) -> Any:
    """Replaces or adds the kernels at some paths; None removes a kernel."""
    flat = flatten_dict(params) | {(*path, "kernel"): kernel for path, kernel in changed.items()}
    return unflatten_dict({path: value for path, value in flat.items() if value is not None})
