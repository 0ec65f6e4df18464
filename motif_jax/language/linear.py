"""Replaces the computation of linear layers (low-rank additions, quantised kernels) without changing the networks."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import Any

import flax.linen as nn
import jax

from motif_jax.support.errors import UserError

# Names of a linear layer from the top: ('decoder', 'block_0', 'attention', 'query').
Path = tuple[str, ...]


# (module, x, plain) -> y; `plain()` computes the layer as it is.
Layer = Callable[[nn.Dense, jax.Array, Callable[[], jax.Array]], jax.Array]
_active: ContextVar[tuple[tuple[int, Layer], ...]] = ContextVar("layers", default=())


@contextlib.contextmanager
def computed_by(layer: Layer, order: int = 0) -> Iterator[None]:
    """While active, linear layers return `layer(module, x, plain)`.

    Among several active ones the lowest `order` is called first, and its `plain` calls the next. Enter it inside the function that is
    transformed (grad, jit), not round it: it acts while the model is traced.
    """
    before = _active.get()
    token = _active.set(tuple(sorted((*before, (order, layer)), key=lambda one: one[0])))
    try:
        with contextlib.nullcontext() if before else nn.intercept_methods(_intercept):
            yield
    finally:
        _active.reset(token)


def _intercept(plain: Callable[..., Any], given: Any, named: Any, context: Any) -> Any:
    module = context.module
    if not isinstance(module, nn.Dense) or context.method_name != "__call__":
        return plain(*given, **named)
    found = functools.partial(plain, *given, **named)
    for _, layer in reversed(_active.get()):
        found = functools.partial(layer, module, given[0], found)
    return found()


def kernels(params: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The kernels [in, out] of all linear layers of a model, by the path of their layer."""
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from kernels(value, (*path, name))
        elif name == "kernel":
            yield path, value


def matching(params: Mapping[str, Any], patterns: Sequence[str]) -> list[Path]:
    """The linear layers that any pattern matches, in the order of the model.

    Args:
      params: of a model, or their shapes.
      patterns: paths joined by /, with * for any text: '*/attention/query', 'decoder/block_0/*', '*'.

    Raises:
      UserError: a pattern matches no layer.
    """
    there = {"/".join(path): path for path, _ in kernels(params)}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in there):
            ends = sorted({"/".join(("*", *path[-2:])) for path in there.values()})
            raise UserError(
                f"config.lora.patterns: pattern {pattern!r} matches no linear layer; there are {', '.join(ends)}"
            )
    return [path for name, path in there.items() if any(fnmatchcase(name, one) for one in patterns)]


def replaced(params: Mapping[str, Any], changed: Mapping[Path, Any]) -> Any:
    """Replaces the kernels at some paths; None removes a kernel."""

    def walk(tree: Mapping[str, Any], path: Path) -> dict[str, Any]:
        found = {}
        for name, value in tree.items():
            if isinstance(value, Mapping):
                found[name] = walk(value, (*path, name))
            elif name != "kernel" or path not in changed:
                found[name] = value
            elif changed[path] is not None:
                found[name] = changed[path]
        return found

    return walk(params, ())
