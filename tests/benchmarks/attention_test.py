"""The benchmark of attention beside that of jax."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.benchmarks import attention
from motif_jax.core.errors import UserError
from tests.benchmarks.lines import line_of

TINY = {"batch_size": 2, "tokens": 5, "heads": 3, "head_width": 4, "seconds": 0.01}


def test_both_sides_give_the_same_attention_and_gradients() -> None:
    line = line_of("attention", **TINY)

    assert line["apart"] < 1e-5
    assert min(line["value"], line["baseline"]["value"]) > 0


def test_a_side_that_differs_shows_in_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(implementation: str):
        return lambda query, key, value, bias: attention.ours(query, key, value, 2 * bias)

    monkeypatch.setattr(attention, "of_jax", other)

    assert line_of("attention", **TINY)["apart"] > 0.05


def test_ours_is_known_where_the_device_lacks_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(implementation: str):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(attention, "of_jax", other)

    with pytest.raises(RuntimeError, match="no such kernel"):
        line_of("attention", **TINY)
    early = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (early["benchmark"], early["unit"]) == ("attention", "queries/s")
    assert early["value"] > 0


def test_the_gradient_reaches_all_four_inputs() -> None:
    rng = np.random.default_rng(4)
    shapes = [(1, 5, 2, 4)] * 3 + [(1, 2, 5, 5)]
    inputs = [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes]

    gradients, _ = jax.jit(attention.with_gradient(attention.ours))(*inputs)

    assert [gradient.shape for gradient in gradients] == shapes
    assert all(float(jnp.abs(gradient).max()) > 0 for gradient in gradients)


def test_a_fused_kernel_needs_a_gpu() -> None:
    with pytest.raises(UserError, match=r"options\.implementation='cudnn'"):
        line_of("attention", **TINY, implementation="cudnn")
