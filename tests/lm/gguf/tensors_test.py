"""Tensors of GGUF files: every type is unpacked as llama.cpp's own package does, whatever the part
that is read.
"""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm.gguf import files
from motif_jax.lm.gguf.files import GgufTensors
from tests.lm.gguf import gguf_writing
from tests.lm.gguf.gguf_writing import gguf

SHAPE = (6, 512)
# Types that the package packs, with the largest error of a number by a normal distribution.
PACKED = {
    "F32": 0.0,
    "F16": 2e-3,
    "BF16": 2e-2,
    "Q8_0": 0.03,
    "Q4_0": 0.5,
    "Q4_1": 0.3,
    "Q5_0": 0.2,
    "Q5_1": 0.15,
}


def packed_file(path: Path, kind: str) -> tuple[Path, np.ndarray]:
    """A file with one tensor of packed numbers by chance, and its numbers by the package."""
    quantisation = gguf.GGMLQuantizationType[kind]
    row_bytes = gguf.quants.quant_shape_to_byte_shape(SHAPE, quantisation)[-1]
    # Small bytes, since the scales among them are halves of 16 bits, and large ones may be
    # infinite.
    packed = np.random.default_rng(0).integers(0, 100, (SHAPE[0], row_bytes)).astype(np.uint8)
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_tensor("token_embd.weight", packed, raw_dtype=quantisation)
    return gguf_writing.finished(writer, path), gguf.dequantize(packed, quantisation).reshape(SHAPE)


def file_of(
    folder: Path, architecture: str, stored: str, numbers: np.ndarray, heads: int = 1
) -> Path:
    """A file with one tensor by llama.cpp's name, float32."""
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_head_count(heads)
    writer.add_tensor(stored, numbers)
    return gguf_writing.finished(writer, path)


@pytest.mark.parametrize("kind", files.TYPES)
def test_numbers_are_those_of_the_package(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected = packed_file(tmp_path / "model.gguf", kind)
    # Rows are read in parts of four.
    monkeypatch.setattr(files, "NUMBERS_AT_ONCE", 4 * SHAPE[1])

    numbers = GgufTensors(path).find("model.embed_tokens.weight")

    np.testing.assert_array_equal(numbers, expected)


@pytest.mark.parametrize("kind", ["F32", "Q4_K"])
def test_rows_are_those_of_the_tensor(tmp_path: Path, kind: str) -> None:
    path, expected = packed_file(tmp_path / "model.gguf", kind)

    rows = GgufTensors(path).rows("model.embed_tokens.weight", 2, 99)

    np.testing.assert_array_equal(rows, expected[2:])


@pytest.mark.parametrize("kind", PACKED)
def test_numbers_are_near_those_that_were_packed(tmp_path: Path, kind: str) -> None:
    numbers = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "qwen2")
    gguf_writing.add_tensor(writer, "output.weight", numbers, kind)
    path = gguf_writing.finished(writer, tmp_path / "model.gguf")

    np.testing.assert_allclose(GgufTensors(path).find("lm_head.weight"), numbers, atol=PACKED[kind])


def test_numbers_are_of_the_dtype_that_is_asked_for(tmp_path: Path) -> None:
    path, expected = packed_file(tmp_path / "model.gguf", "Q6_K")

    numbers = GgufTensors(path).find("model.embed_tokens.weight", jnp.bfloat16)

    assert numbers.dtype == jnp.bfloat16
    np.testing.assert_array_equal(numbers, expected.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("architecture", "stored", "name"),
    [
        ("qwen2", "blk.3.attn_q.bias", "model.layers.3.self_attn.q_proj.bias"),
        ("qwen3", "blk.10.attn_k_norm.weight", "model.layers.10.self_attn.k_norm.weight"),
        ("llama", "blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
        ("gemma3", "blk.0.ffn_norm.weight", "model.layers.0.pre_feedforward_layernorm.weight"),
        ("qwen2", "output_norm.weight", "model.norm.weight"),
        # What transformers has no name for keeps llama.cpp's.
        ("qwen2", "blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp.weight"),
        ("qwen2", "blk.0.attn_q.scale", "blk.0.attn_q.scale"),
        ("mamba", "blk.0.attn_q.weight", "blk.0.attn_q.weight"),
    ],
)
def test_tensors_have_the_names_of_transformers(
    tmp_path: Path, architecture: str, stored: str, name: str
) -> None:
    path = file_of(tmp_path, architecture, stored, np.ones((2, 4), np.float32))

    assert GgufTensors(path).names == [name]


def test_rows_of_llamas_queries_come_in_halves_of_a_head(tmp_path: Path) -> None:
    # Two heads of four rows, in which llama.cpp has neighbours 0 and 1 for the halves' first rows.
    rows = np.arange(8, dtype=np.float32)[:, None]
    path = file_of(tmp_path, "llama", "blk.0.attn_q.weight", rows, heads=2)
    tensors_of_file = GgufTensors(path)

    query = tensors_of_file.find("model.layers.0.self_attn.q_proj.weight")

    assert query.ravel().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    some = tensors_of_file.rows("model.layers.0.self_attn.q_proj.weight", 1, 4)
    assert some.ravel().tolist() == [2, 1, 3]


def test_rows_of_qwens_queries_stay_in_their_order(tmp_path: Path) -> None:
    rows = np.arange(8, dtype=np.float32)[:, None]
    path = file_of(tmp_path, "qwen2", "blk.0.attn_q.weight", rows, heads=2)

    query = GgufTensors(path).find("model.layers.0.self_attn.q_proj.weight")

    assert query.ravel().tolist() == list(range(8))


def test_gemmas_norms_are_read_without_the_added_one(tmp_path: Path) -> None:
    stored = np.array([1.0, 1.25, 0.5], np.float32)
    path = file_of(tmp_path, "gemma3", "output_norm.weight", stored)

    assert GgufTensors(path).find("model.norm.weight").tolist() == [0.0, 0.25, -0.5]


def test_type_that_is_not_read_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    packed = np.zeros((4, 136), np.uint8)
    writer.add_tensor("token_embd.weight", packed, raw_dtype=gguf.GGMLQuantizationType.IQ4_XS)
    path = gguf_writing.finished(writer, tmp_path / "model.gguf")

    with pytest.raises(
        UserError, match="has tensors of type IQ4_XS, which are not read: take a file of F16"
    ):
        GgufTensors(path)
