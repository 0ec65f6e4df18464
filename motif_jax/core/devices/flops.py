"""Counts the floating-point operations of a program's matrix products and convolutions, and knows
how many a second a device can do at most.

That is how model FLOPs are counted in the literature: everything else a program does counts as
free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jax.extend.core import Literal


def product_flops(jaxpr: Any, differentiated: Sequence[bool]) -> tuple[float, float]:
    """Operations of all products, and of those with a factor that does not depend on a
    differentiated input.

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

    A product costs as much again for each factor that has a gradient. Operations that the gradient
    repeats to save memory (rematerialisation) do not count. Arguments are those of `product_flops`.
    """
    return sum(
        operations * (1 + factors) for operations, factors in _products(jaxpr, differentiated)
    )


def _products(jaxpr: Any, differentiated: Sequence[bool]) -> Iterator[tuple[float, int]]:
    """Yields (operations, number of its two factors that depend on a differentiated input) of each
    product.
    """
    for equation, depends in _equations(jaxpr, differentiated):
        operations = _operations(equation)
        if operations:
            # The first two inputs of a product are its factors.
            yield operations, depends[:2].count(True)
        # A scan says how often it runs. A `while` does not: its body counts once.
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        programs = _programs(equation, depends)
        if equation.primitive.name == "cond":
            # One of the branches runs: the dearest counts.
            programs = [
                max(programs, key=lambda program: sum(cost for cost, _ in _products(*program)))
            ]
        for program in programs:
            for operations, factors in _products(*program):
                yield repeats * operations, factors


def _equations(jaxpr: Any, differentiated: Sequence[bool]) -> Iterator[tuple[Any, list[bool]]]:
    """Yields each equation, and which of its inputs depend on a differentiated one. All results of
    an equation that has one do.
    """
    inputs = zip(jaxpr.invars, differentiated, strict=True)
    dependent = {variable for variable, is_differentiated in inputs if is_differentiated}
    for equation in jaxpr.eqns:
        depends = [
            not isinstance(value, Literal) and value in dependent for value in equation.invars
        ]
        if any(depends):
            dependent.update(equation.outvars)
        yield equation, depends


def _programs(equation: Any, depends: list[bool]) -> list[tuple[Any, list[bool]]]:
    """The programs inside an equation, and which of their inputs depend: a scan's body, a jitted
    function, branches of a condition.
    """
    if equation.primitive.name == "scan":
        body = equation.params["jaxpr"].jaxpr
        return [(body, _in_all_turns(body, depends, *_scan_inputs(equation.params)))]
    programs = []
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else [value]:
            inner: Any = getattr(part, "jaxpr", part)
            if not hasattr(inner, "eqns"):
                continue
            inner_depends = depends
            if equation.primitive.name == "cond":
                inner_depends = depends[1:]  # the first input chooses the branch
            if len(inner_depends) != len(inner.invars):
                # A loop's condition, for example, has other inputs: any of them may depend.
                inner_depends = [any(depends)] * len(inner.invars)
            programs.append((inner, inner_depends))
    return programs


def _scan_inputs(params: Mapping[str, Any]) -> tuple[int, int]:
    """The numbers of a scan's constants and carried values, of its parameters."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    # From jax 0.11 on.
    constants, carried, _ = params["ft_in"].unpack()
    return len(constants), len(carried)


def _in_all_turns(body: Any, depends: list[bool], constants: int, carried: int) -> list[bool]:
    """Which inputs of a scan's body depend in any turn: what it carries may depend from the second
    one on.
    """
    depends = list(depends)
    while True:
        dependent = set()
        for equation, inputs in _equations(body, depends):
            if any(inputs):
                dependent.update(equation.outvars)
        inputs_of_outputs = dict(zip(body.invars, depends, strict=True))
        changed = False
        for input_index, output in enumerate(body.outvars[:carried], start=constants):
            is_dependent = not isinstance(output, Literal) and (
                output in dependent or inputs_of_outputs.get(output, False)
            )
            if is_dependent and not depends[input_index]:
                depends[input_index] = True
                changed = True
        if not changed:
            return depends


def _operations(equation: Any) -> float:
    """Multiplications and additions of one equation, two for each pair of factors; 0 where it is
    not a product.
    """
    shapes = [value.aval.shape for value in equation.invars if hasattr(value.aval, "shape")]
    result = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2.0 * result * math.prod(shapes[0][axis] for axis in contracted)
    if equation.primitive.name == "conv_general_dilated":
        # Each number of the result sums over the kernel's entries for one output feature.
        features = equation.params["dimension_numbers"].rhs_spec[0]
        return 2.0 * result * math.prod(shapes[1]) / shapes[1][features]
    return 0.0


class Peak(NamedTuple):
    """Dense floating-point operations a second, in units of 1e12, by the products' factors; sums
    are float32.

    `float32` are exact products, `rounded` those of float32 whose factors the device rounds by
    default (TF32 on GPUs since Ampere, bfloat16 on TPUs). None: the device has no units for it.
    """

    bfloat16: float | None
    rounded: float
    float32: float


# By a part of jax's `device_kind`; the first that fits counts. From the makers' data sheets,
# without sparsity.
PEAKS = {
    "B200": Peak(2250.0, 1100.0, 75.0),
    "H200": Peak(989.0, 494.0, 67.0),
    "GH200": Peak(989.0, 494.0, 67.0),
    "H100 PCIe": Peak(756.0, 378.0, 51.0),
    "H100 NVL": Peak(835.0, 417.0, 60.0),
    "H100": Peak(989.0, 494.0, 67.0),
    "A100": Peak(312.0, 156.0, 19.5),
    "L40S": Peak(362.0, 183.0, 91.6),
    "L4": Peak(121.0, 60.0, 30.3),
    "A10": Peak(125.0, 62.5, 31.2),
    "RTX 4090": Peak(165.2, 82.6, 82.6),
    "RTX 3090": Peak(71.0, 35.6, 35.6),
    "V100": Peak(None, 15.7, 15.7),
    "T4": Peak(None, 8.1, 8.1),
    "TPU v6": Peak(918.0, 918.0, 918.0),
    "TPU v5 lite": Peak(197.0, 197.0, 197.0),
    "TPU v5": Peak(459.0, 459.0, 459.0),
    "TPU v4": Peak(275.0, 275.0, 275.0),
}


def peak_flops(device: Any, dtype: str, precision: str) -> float | None:
    """Operations a second of products on a jax device; None where its kind is not known, as on
    every CPU.

    Args:
      dtype: of the computation, 'float32' or 'bfloat16'.
      precision: of float32 products, 'default' or 'highest' (`config.matmul_precision`).
    """
    peak = _peak_of(device.device_kind)
    if peak is None:
        return None
    if dtype == "bfloat16":
        teraflops = peak.bfloat16
    elif precision == "highest":
        teraflops = peak.float32
    else:
        teraflops = peak.rounded
    return None if teraflops is None else 1e12 * teraflops


def _peak_of(device_kind: str) -> Peak | None:
    """The first entry of `PEAKS` whose name is a whole word of `device_kind`: an A100 is not an
    A10.
    """
    padded = f" {device_kind} "
    for kind, peak in PEAKS.items():
        start = padded.find(kind)
        end = start + len(kind)
        if start > 0 and not padded[start - 1].isalnum() and not padded[end].isalnum():
            return peak
    return None
