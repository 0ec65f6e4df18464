"""Reads programs in StableHLO: which products they have, whose memory they take over, and what no
GPU runs well.
"""

from __future__ import annotations

import math
import re
from typing import Any

# Functions of NVIDIA's libraries that programs may call: the QR factorisation of the orthogonal
# initialisation.
GPU_CALLS = {"cusolver_geqrf_ffi", "cusolver_orgqr_ffi"}
# As many numbers may be added up in bfloat16.
SHORT_SUM = 8


def lowered(program: Any, *args: Any) -> str:
    """The program in StableHLO."""
    text: str = program.lower(*args).as_text()
    return text


def unfit_for_a_gpu(text: str) -> list[str]:
    """What a program has that a GPU cannot run, or runs badly."""
    calls = set(re.findall(r"custom_call @([\w.]+)", text)) - GPU_CALLS
    problems = [f"calls {name}, which a GPU may not have" for name in sorted(calls)]
    if "f64>" in text:
        problems.append("float64, which takes 2 to 64 times as long as float32")
    return problems + long_bfloat16_sums(text)


def long_bfloat16_sums(text: str) -> list[str]:
    """Sums of many bfloat16 numbers, which Hopper GPUs add up in bfloat16: reductions, scatters,
    and over devices.
    """
    sums = []
    reductions = r"stablehlo\.reduce\(.*applies stablehlo\.add across dimensions = \[([\d, ]*)\] : \(tensor<([\dx]*)xbf16>"
    for axes, shape in re.findall(reductions, text):
        sizes = [int(size) for size in shape.split("x")]
        if math.prod(sizes[int(axis)] for axis in axes.split(",")) > SHORT_SUM:
            sums.append(f"reduction of {shape} over {axes}")
    for kind in ("scatter", "all_reduce"):
        operations = re.findall(
            rf'"stablehlo\.{kind}"\((.*?)\}}\) : \(.*?\) -> (tensor<[^>]*>)', text, re.DOTALL
        )
        for region, result in operations:
            # A scatter may also write values, such as those of a cache.
            if result.endswith("bf16>") and "stablehlo.add" in region:
                sums.append(f"{kind} of {result}")
    return sums


def products(text: str, kind: str) -> list[tuple[str, ...]]:
    """Types like '20x512xf32' of factors and result of the operations `kind`, 'convolution' or
    'dot_general'.
    """
    types = r": \(tensor<([^>]*)>, tensor<([^>]*)>\) -> tensor<([^>]*)>"
    return re.findall(rf"stablehlo\.{kind}\b.*{types}", text)


def donated(text: str) -> list[bool]:
    """Of each argument of the program, whether its memory is given to a result."""
    signature = re.search(r"func\.func public @main\((.*?)\) -> ", text, re.DOTALL)
    assert signature is not None
    arguments = re.split(r", (?=%arg\d+:)", signature.group(1))
    return ["tf.aliasing_output" in part or "jax.buffer_donor" in part for part in arguments]
