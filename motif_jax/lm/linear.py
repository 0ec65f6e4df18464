"""Replaces the computation of linear layers (low-rank additions, quantised kernels) without
changing the networks.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from flax.traverse_util import flatten_dict, unflatten_dict

from motif_jax.core.errors import UserError
from motif_jax.core.training import block_stack
from motif_jax.lm.layers import Linear

# Names of a linear layer from the top: ('decoder', 'block_0', 'attention', 'query').
Path = tuple[str, ...]
# (module, x, plain, value) -> y; `plain()` computes the layer as it is, `value` is the layer's own.
Layer = Callable[[Linear, jax.Array, Callable[[], jax.Array], Any], jax.Array]


class Replacement(NamedTuple):
    """A function that computes the linear layers which have a value, and the values by the layer's
    path, joined by /.
    """

    layer: Layer
    values: Mapping[str, Any]


_active: contextvars.ContextVar[tuple[Replacement, ...]] = contextvars.ContextVar(
    "replacements", default=()
)


def active() -> tuple[Replacement, ...]:
    """The replacements that are active now, the first entered first."""
    return _active.get()


@contextlib.contextmanager
def computed_by(layer: Layer, values: Mapping[str, Any]) -> Iterator[None]:
    """While active, linear layers with a value return `layer(module, x, plain, value)`; the others
    stay as they are.

    Of several replacements the first entered is called first, its `plain` is the next. Enter them
    inside the function that is transformed (grad, jit), not around it: they act while the model is
    traced. Where blocks run in a loop, it slices the values (see `network.BlockLoop`).
    """

    def intercept(plain: Callable[..., Any], arguments: Any, keywords: Any, context: Any) -> Any:
        module = context.module
        value = values.get("/".join(module.path)) if isinstance(module, Linear) else None
        # A replacement calls `product` of the layer itself, which must not come back here.
        if value is None or context.method_name == "product":
            return plain(*arguments, **keywords)
        if context.method_name == "by_output":
            raise ValueError(f"{'/'.join(module.path)}: a replaced layer has no `by_output`")
        return layer(module, arguments[0], functools.partial(plain, *arguments, **keywords), value)

    # Beside flax's interception: `BlockLoop` asks which values it has to slice.
    token = _active.set((*_active.get(), Replacement(layer, values)))
    try:
        with nn.intercept_methods(intercept):
            yield
    finally:
        _active.reset(token)


def require_apart() -> None:
    """Raises ValueError where an active replacement has values of stacked blocks, which no block by
    itself would find.
    """
    for replacement in active():
        for path in replacement.values:
            if block_stack.is_stacked((path,)):
                raise ValueError(
                    f"{path}: the values of stacked blocks, and the model's blocks run one after the other"
                )


def kernels(params: Any) -> dict[Path, Any]:
    """The kernels [in, out] of all linear layers of a model, by the path of their layer."""
    return {
        path[:-1]: value for path, value in flatten_dict(params).items() if path[-1] == "kernel"
    }


def matching(params: Any, patterns: Sequence[str]) -> list[Path]:
    """The linear layers that any pattern matches, in the order of the model; `params` may be
    shapes.

    Patterns are paths joined by /, with * for any text: '*/attention/query', 'decoder/block_0/*',
    '*'.

    Raises:
      UserError: a pattern matches no layer.
    """
    paths = {"/".join(path): path for path in kernels(params)}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in paths):
            endings = sorted({"/".join(("*", *path[-2:])) for path in paths.values()})
            raise UserError(
                f"config.lora.patterns: pattern {pattern!r} matches no linear layer; give one of {', '.join(endings)}"
            )
    # In the model's order, whichever pattern matches: `lora.init` numbers its keys by it.
    matches = []
    for name, path in paths.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            matches.append(path)
    return matches


def replaced(params: Any, changed: Mapping[Path, Any]) -> Any:
    """Replaces or adds the kernels at some paths; None removes a kernel."""
    flat = flatten_dict(params)
    for path, kernel in changed.items():
        flat[(*path, "kernel")] = kernel
    return unflatten_dict({path: value for path, value in flat.items() if value is not None})
