"""Parameters in the dtype in which a network multiplies them, cast once for many calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Literal

Params = Any


def cast_ahead(function: Callable[..., Any], params: Params, *arguments: Any) -> Params:
    """Returns `params` with those leaves cast that `function(params, *arguments)` only ever reads
    in one other dtype.

    The function's results stay the same, bit for bit, since it makes the same casts.
    """
    leaves, structure = jax.tree.flatten(params)
    program = jax.make_jaxpr(function)(params, *arguments).jaxpr

    # Variable of a leaf -> dtypes to which the program casts it; None: it reads the leaf in another
    # way.
    read_dtypes: dict[Any, set[Any]] = {
        variable: set() for variable in program.invars[: len(leaves)]
    }

    def record(values: Sequence[Any], dtype: Any) -> None:
        for value in values:
            # Literals cannot be hashed.
            if not isinstance(value, Literal) and value in read_dtypes:
                read_dtypes[value].add(dtype)

    for equation in program.eqns:
        is_cast = equation.primitive.name == "convert_element_type"
        record(equation.invars, equation.params["new_dtype"] if is_cast else None)
    record(program.outvars, None)

    cast = []
    for leaf, dtypes in zip(leaves, read_dtypes.values(), strict=True):
        if len(dtypes) == 1 and None not in dtypes:
            (dtype,) = dtypes
            leaf = leaf.astype(dtype)
        cast.append(leaf)
    return jax.tree.unflatten(structure, cast)
