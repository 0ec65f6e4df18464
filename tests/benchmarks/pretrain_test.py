"""The benchmark of the training of language models, at a size that takes a moment."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from motif_jax.benchmarks import _language, pretrain
from motif_jax.stages import benchmark
from motif_jax.support.errors import UserError
from tests.processes import REPOSITORY

TINY = {
    "width": 16, "layers": 1, "heads": 2, "vocab_size": 64, "length": 8, "batch_size": 8, "accumulate": 1, "steps": 4, "chunk_steps": 2,
    "tokens": 500,
}  # fmt: skip


def config(name: str, **options: Any) -> Any:
    made = runpy.run_path(str(REPOSITORY / "configs" / "benchmark.py"))["get_config"](name)
    made.options.update({**TINY, **options})
    made.repeats = 2
    return made


@pytest.fixture(autouse=True)
def quick(compiled_quickly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_language._agents, "matrix_product_rate", lambda dtype: 1e9)


@pytest.mark.slow
def test_both_sides_are_measured_and_the_operations_are_those_of_the_shape() -> None:
    made = config("pretrain")
    benchmark.check(made, None)
    line = pretrain.run(made)
    assert line["value"] > 0 < line["baseline"]["value"]
    # Every parameter of a layer and of the head works 2 operations a token forward and 4 backward; attention comes on top.
    layer, head = 12 * 16 * 16, 64 * 16
    least = 6 * (layer + head) * 8 * 8
    assert least <= line["model_flops"] * line["devices"] <= 1.5 * least


def test_the_variant_for_a_gpu_has_a_published_shape_and_bad_options_are_named() -> None:
    on_gpu = runpy.run_path(str(REPOSITORY / "configs" / "benchmark.py"))["get_config"](
        "pretrain_gpu"
    ).options
    assert (on_gpu.width, on_gpu.layers, on_gpu.heads, on_gpu.vocab_size) == (1024, 24, 16, 50_257)
    assert on_gpu.dtype == "bfloat16"
    with pytest.raises(UserError, match=r"options\.steps=3: must be a multiple of 2"):
        benchmark.check(config("pretrain", steps=3), None)
