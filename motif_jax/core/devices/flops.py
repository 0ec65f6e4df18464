"""Counts the floating-point operations of a program's matrix products and convolutions.

That is how model FLOPs are counted in the literature: everything else a program does counts as free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from jax.extend.core import Literal


def product_flops(jaxpr: Any, differentiated: Sequence[bool]) -> tuple[float, float]:
    """Operations of all products, and of those with a factor that does not depend on a differentiated input.

    Args:
      jaxpr: the program (`jax.core.Jaxpr`).
      differentiated: for each input of `jaxpr`, whether the gradient is taken with respect to it.
    """
    total = 0.0
    with_constant_factor = 0.0
    for operations, factors in _products(jaxpr, differentiated):
        total += operations
        if factors < 2:
            with_constant_factor += operations
    return total, with_constant_factor


def gradient_flops(jaxpr: Any, differentiated: Sequence[bool]) -> float:
    """Operations of a function and its gradient.

    A product costs as much again for each factor that has a gradient. Operations that the gradient repeats to save memory
    (rematerialisation) do not count. Arguments are those of `product_flops`.
    """
    return sum(operations * (1 + factors) for operations, factors in _products(jaxpr, differentiated))


def _products(jaxpr: Any, differentiated: Sequence[bool]) -> Iterator[tuple[float, int]]:
    """Yields (operations, number of its two factors that depend on a differentiated input) of each product."""
    inputs = zip(jaxpr.invars, differentiated, strict=True)
    dependent = {variable for variable, is_differentiated in inputs if is_differentiated}
    for equation in jaxpr.eqns:
        depends = [not isinstance(value, Literal) and value in dependent for value in equation.invars]
        if any(depends):
            dependent.update(equation.outvars)
        operations = _operations(equation)
        if operations:
            yield operations, depends[:2].count(True)

        # Programs inside this one: the body of a scan, a jitted function, the branches of a condition.
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if not hasattr(inner, "eqns"):
                continue
            inner_depends = depends
            if len(depends) != len(inner.invars):
                # A loop's condition, for example, has other inputs: any of them may depend.
                inner_depends = [any(depends)] * len(inner.invars)
            for operations, factors in _products(inner, inner_depends):
                yield repeats * operations, factors


def _operations(equation: Any) -> float:
    """Multiplications and additions of one equation, two for each pair of factors; 0 where it is not a product."""
    shapes = [value.aval.shape for value in equation.invars if hasattr(value.aval, "shape")]
    result = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2.0 * result * math.prod(shapes[0][axis] for axis in contracted)
    if equation.primitive.name == "conv_general_dilated":
        features = equation.params["dimension_numbers"].rhs_spec[0]
        return 2.0 * result * math.prod(shapes[1]) / shapes[1][features]
    return 0.0
