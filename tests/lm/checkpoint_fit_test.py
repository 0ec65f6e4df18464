"""A tensor of a checkpoint that is missing, quantised, not finite or not used is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from motif_jax.core.errors import UserError
from motif_jax.lm import weights
from tests.lm import models

QUERY = "model.layers.0.self_attn.q_proj"


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """Writes a checkpoint with some tensors changed, or left out where they are None."""

    def write(architecture: str, changes: dict[str, Any]) -> Path:
        folder = models.write(tmp_path / architecture, architecture)
        tensors = {**load_file(folder / weights.SINGLE), **changes}
        save_file(
            {
                name: np.ascontiguousarray(tensor)
                for name, tensor in tensors.items()
                if tensor is not None
            },
            folder / weights.SINGLE,
        )
        return folder

    return write


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as raised:
        models.load(folder)
    return str(raised.value)


def test_all_missing_tensors_are_named(changed: Callable[..., Path]) -> None:
    line = refusal(changed("llama", {f"{QUERY}.weight": None, "model.norm.weight": None}))
    assert "model.norm.weight: absent saved, float[16] wanted" in line
    assert f"{QUERY}.weight: absent saved, float[16, 16] wanted" in line


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("llama", f"{QUERY}.SCB"),
        ("llama", f"{QUERY}.bias"),
        ("llama", "model.layers.0.self_attn.q_norm.weight"),
        ("llama", "model.layers.2.input_layernorm.weight"),
        ("llama", "lm_head.bias"),
        ("gpt2", "transformer.h.0.crossattention.c_attn.weight"),
        ("gpt2", "h.0.attn.c_attn.lora_A.weight"),
        ("roberta", "roberta.encoder.layer.0.crossattention.self.query.weight"),
    ],
)
def test_part_of_the_network_that_is_not_used_is_refused(
    changed: Callable[..., Path], architecture: str, name: str
) -> None:
    line = refusal(changed(architecture, {name: np.ones(3, np.float32)}))
    assert f"{name}: float[3] saved, absent wanted" in line


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("llama", "v_head.summary.weight"),
        ("gpt2", "score.weight"),
        ("roberta", "classifier.dense.weight"),
    ],
)
def test_head_of_another_task_is_named_and_left_out(
    changed: Callable[..., Path], architecture: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = changed(architecture, {name: np.ones(3, np.float32)})
    models.load(folder)
    assert capfd.readouterr().err == f"note: {folder}: not used: {name}\n"


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("llama", "model.layers.1.self_attn.rotary_emb.inv_freq"),
        ("llama", "model.rotary_emb.inv_freq"),
        ("gpt2", "transformer.h.0.attn.bias"),
        ("gpt2", "h.0.attn.masked_bias"),
        ("roberta", "roberta.embeddings.position_ids"),
        ("t5", "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"),
    ],
)
def test_buffers_that_follow_from_the_config_are_no_concern(
    changed: Callable[..., Path], architecture: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    models.load(changed(architecture, {name: np.ones(3, np.float32)}))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
def test_weights_that_are_no_floats_are_refused(changed: Callable[..., Path], dtype: Any) -> None:
    line = refusal(
        changed("llama", {f"{QUERY}.weight": np.ones((16, 16), np.float32).astype(dtype)})
    )
    assert f"{QUERY}.weight: " in line
    assert "[16, 16] saved, float[16, 16] wanted" in line


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_weights_in_other_floats_are_read(changed: Callable[..., Path], dtype: Any) -> None:
    folder = changed("llama", {f"{QUERY}.weight": np.full((16, 16), 0.5).astype(dtype)})
    np.testing.assert_array_equal(
        models.load(folder)[1]["decoder"]["block_0"]["attention"]["query"]["kernel"], 0.5
    )


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(
    changed: Callable[..., Path], number: float
) -> None:
    norm = np.ones(16, np.float32)
    norm[3] = number
    line = refusal(changed("llama", {"model.norm.weight": norm}))
    assert "model.norm.weight: NaN or infinite numbers saved" in line


def test_a_transposed_convolution_is_refused(changed: Callable[..., Path], tmp_path: Path) -> None:
    name = "transformer.h.0.attn.c_attn.weight"
    folder = models.write(tmp_path / "plain", "gpt2")
    turned = load_file(folder / weights.SINGLE)[name].T
    line = refusal(changed("gpt2", {name: turned}))
    assert (
        f"{name}: float{list(turned.shape)} saved, float{list(turned.shape[::-1])} wanted" in line
    )


def test_copy_of_the_embedding_is_no_concern(
    changed: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    embedding = load_file(models.write(tmp_path / "plain", "gpt2") / weights.SINGLE)[
        "transformer.wte.weight"
    ]
    models.load(changed("gpt2", {"lm_head.weight": embedding}))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_copies_of_t5s_embedding_are_no_concern(
    changed: Callable[..., Path], tmp_path: Path, side: str, capfd: pytest.CaptureFixture[str]
) -> None:
    embedding = load_file(models.write(tmp_path / "plain", "t5") / weights.SINGLE)["shared.weight"]
    models.load(changed("t5", {f"{side}.embed_tokens.weight": embedding}))
    assert capfd.readouterr().err == ""


def test_head_that_differs_from_a_tied_embedding_is_refused(
    changed: Callable[..., Path], tmp_path: Path
) -> None:
    embedding = load_file(models.write(tmp_path / "plain", "gpt2") / weights.SINGLE)[
        "transformer.wte.weight"
    ]
    assert "lm_head.weight: float[" in refusal(changed("gpt2", {"lm_head.weight": embedding + 1}))
