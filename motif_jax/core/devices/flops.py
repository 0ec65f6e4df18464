"""Counts the floating-point operations of a program's products, as model FLOPs are counted: whatever else it does is free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax.extend.core import Literal


def product_flops(jaxpr: Any, differentiated: Sequence[bool]) -> tuple[float, float]:
    """Operations of all products, and of those with a factor that does not depend on a differentiated input."""
    total = alone = 0.0
    reached = {variable for variable, given in zip(jaxpr.invars, differentiated, strict=True) if given}
    for equation in jaxpr.eqns:
        shapes = [value.aval.shape for value in equation.invars if hasattr(value.aval, "shape")]
        result = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
        inputs = [not isinstance(value, Literal) and value in reached for value in equation.invars]
        if any(inputs):
            reached.update(equation.outvars)
        operations = 0.0
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            operations = 2.0 * result * math.prod(shapes[0][axis] for axis in contracted)
        elif equation.primitive.name == "conv_general_dilated":
            features = equation.params["dimension_numbers"].rhs_spec[0]
            operations = 2.0 * result * math.prod(shapes[1]) / shapes[1][features]
        total += operations
        alone += 0.0 if all(inputs) else operations
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                # A loop's condition, for example, has other inputs.
                given = inputs if len(inputs) == len(inner.invars) else [any(inputs)] * len(inner.invars)
                within, within_alone = product_flops(inner, given)
                total, alone = total + repeats * within, alone + repeats * within_alone
    return total, alone
