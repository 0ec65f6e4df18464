"""The config of a GGUF file: what its metadata say, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm.attention import rotary_frequencies
from motif_jax.lm.config import Rotary
from motif_jax.lm.gguf.folder import config_values
from tests.lm import models, recipes
from tests.lm.gguf import gguf_writing
from tests.lm.gguf.gguf_writing import gguf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = models.write(tmp_path / "theirs", "llama")
    (path / "config.json").write_text(
        json.dumps({**recipes.CONFIGS["llama"], "rope_parameters": recipes.PLAIN})
    )
    return path


def scaled_file(path: Path, divisors: np.ndarray, theta: float, head_width: int) -> Path:
    """A file without weights but for the embedding, and with the divisors of its rotary
    frequencies.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(4 * head_width)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(theta)
    writer.add_tensor("token_embd.weight", np.zeros((8, 4 * head_width), np.float32))
    writer.add_tensor("rope_freqs.weight", divisors.astype(np.float32))
    return gguf_writing.finished(writer, path)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_scaling_of_llama_3_is_recovered_from_its_divisors(tmp_path: Path, factor: float) -> None:
    scaled = Rotary(500000.0, "llama3", factor, 1.0, 4.0, 8192)
    divisors = rotary_frequencies(Rotary(500000.0), 64) / rotary_frequencies(scaled, 64)

    values = config_values(scaled_file(tmp_path / "model.gguf", np.asarray(divisors), 500000.0, 64))

    assert values["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": pytest.approx(factor),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def test_divisors_of_another_formula_are_refused(tmp_path: Path) -> None:
    divisors = np.asarray(jnp.linspace(1.0, 8.0, 32))
    path = scaled_file(tmp_path / "model.gguf", divisors, 500000.0, 64)

    with pytest.raises(UserError, match=r"rope_freqs\.weight are not those of Llama 3"):
        config_values(path)


def test_tokens_that_end_a_turn_end_a_text(tmp_path: Path, folder: Path) -> None:
    path = gguf_writing.write(folder, tmp_path / "model.gguf", {"tokenizer.ggml.eot_token_id": 5})

    assert config_values(path)["eos_token_id"] == [2, 5]


def tokenized_file(path: Path, folder: Path, turn_end: int | None, tokens: list[str]) -> Path:
    more: dict[str, Any] = {"tokenizer.ggml.tokens": tokens}
    if turn_end is not None:
        more["tokenizer.ggml.eot_token_id"] = turn_end
    return gguf_writing.write(folder, path, more)


@pytest.mark.parametrize(
    ("turn_end", "ends"), [(None, [2, 6, 4]), (5, [2, 5])], ids=["found by their texts", "named"]
)
def test_ends_of_turns_without_a_key_are_found_by_text(
    tmp_path: Path, folder: Path, turn_end: int | None, ends: list[int]
) -> None:
    tokens = ["a", "b", "c", "d", "<end_of_turn>", "e", "<|im_end|>"]

    path = tokenized_file(tmp_path / "model.gguf", folder, turn_end, tokens)

    assert config_values(path)["eos_token_id"] == ends


def test_special_tokens_outside_the_table_are_left_out(tmp_path: Path, folder: Path) -> None:
    outside = {
        "tokenizer.ggml.padding_token_id": 4294967295,
        "tokenizer.ggml.eot_token_id": 100_000,
    }

    values = config_values(gguf_writing.write(folder, tmp_path / "model.gguf", outside))

    assert "pad_token_id" not in values
    assert values["eos_token_id"] == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"llama.rope.dimension_count": 2}, "llama.rope.dimension_count is 2, must be 4"),
        ({"llama.attention.value_length": 8}, "llama.attention.value_length is 8, must be 4"),
    ],
)
def test_feature_that_is_not_supported_is_named(
    tmp_path: Path, folder: Path, more: dict[str, Any], message: str
) -> None:
    path = gguf_writing.write(folder, tmp_path / "model.gguf", more)

    with pytest.raises(UserError, match=message):
        config_values(path)
