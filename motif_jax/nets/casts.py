"""Parameters in the dtype in which a network multiplies them, cast once for many calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal

Params = Any


def cast_ahead(function: Callable[..., Any], params: Params, *arguments: Any) -> Params:
    """Returns `params` with those leaves cast that `function(params, *arguments)` only ever reads in one other dtype.

    The function's results stay the same, bit for bit, since it makes the same casts.
    """
    leaves, structure = jax.tree.flatten(params)
    program = jax.make_jaxpr(function)(params, *arguments).jaxpr
    uses: dict[Any, set[Any]] = {variable: set() for variable in program.invars[: len(leaves)]}
    for equation in program.eqns:
        # A leaf that is read in any other way is not cast.
        dtype = equation.params["new_dtype"] if equation.primitive.name == "convert_element_type" else None
        for value in equation.invars:
            if not isinstance(value, Literal) and value in uses:
                uses[value].add(dtype)
    for value in program.outvars:
        if not isinstance(value, Literal) and value in uses:
            uses[value].add(None)
    cast = []
    for leaf, dtypes in zip(leaves, uses.values(), strict=True):
        only = next(iter(dtypes)) if len(dtypes) == 1 else None
        cast.append(leaf if only is None else leaf.astype(only))
    return jax.tree.unflatten(structure, cast)
