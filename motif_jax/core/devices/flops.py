"""Counts the floating-point operations of a program's products, as model FLOPs are counted: whatever else it does is free."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from jax.extend.core import Literal


def product_flops(jaxpr: Any, differentiated: Sequence[bool]) -> tuple[float, float]:
    """Operations of all products, and of those with a factor that does not depend on a differentiated input."""
    total = alone = 0.0
    for operations, factors in _products(jaxpr, differentiated):
        total += operations
        alone += operations if factors < 2 else 0.0
    return total, alone


def gradient_flops(jaxpr: Any, differentiated: Sequence[bool]) -> float:
    """Operations of a function and its gradient: a product costs as much again for each factor that has a gradient.

    What the gradient computes a second time to save memory does not count.
    """
    return sum(operations * (1 + factors) for operations, factors in _products(jaxpr, differentiated))


def _products(jaxpr: Any, differentiated: Sequence[bool]) -> Iterator[tuple[float, int]]:
    """Of each product its operations, and how many of its two factors depend on a differentiated input."""
    reached = {variable for variable, given in zip(jaxpr.invars, differentiated, strict=True) if given}
    for equation in jaxpr.eqns:
        depends = [not isinstance(value, Literal) and value in reached for value in equation.invars]
        if any(depends):
            reached.update(equation.outvars)
        operations = _operations(equation)
        if operations:
            yield operations, sum(depends[:2])
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                # A loop's condition, for example, has other inputs.
                same = len(depends) == len(inner.invars)
                flags = depends if same else [any(depends)] * len(inner.invars)
                for within, factors in _products(inner, flags):
                    yield repeats * within, factors


def _operations(equation: Any) -> float:
    """Multiplications and additions of one equation, 0 where it is no product."""
    shapes = [value.aval.shape for value in equation.invars if hasattr(value.aval, "shape")]
    result = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2.0 * result * math.prod(shapes[0][axis] for axis in contracted)
    if equation.primitive.name == "conv_general_dilated":
        features = equation.params["dimension_numbers"].rhs_spec[0]
        return 2.0 * result * math.prod(shapes[1]) / shapes[1][features]
    return 0.0
