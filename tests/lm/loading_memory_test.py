"""Memory while weights are loaded: little more than the weights themselves, in the dtype that is
asked for.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import config, folder, weights
from motif_jax.lm.gguf import files
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.text import fetch
from tests.lm import models
from tests.lm.gguf import gguf_writing

VALUES = {
    "model_type": "qwen2",
    "vocab_size": 4096,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
MAX_RATIO = 1.3


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Parts as small beside these weights as 4 million numbers are beside a real model's.
    monkeypatch.setattr(weights, "NUMBERS_AT_ONCE", 1 << 14)
    monkeypatch.setattr(files, "NUMBERS_AT_ONCE", 1 << 14)
    settings = config.parse(VALUES)
    folder.write(tmp_path / "model", settings, LanguageModel(settings).init(jax.random.key(0)))
    return tmp_path / "model"


def peak(path: Path) -> float:
    """The most memory of numpy while the weights are loaded in bfloat16, as a share of theirs."""
    settings = config.read(path)
    weights.check(path, settings)
    tracemalloc.start()
    try:
        params = weights.load(path, settings, jnp.bfloat16)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    leaves = jax.tree.leaves(params)
    assert {leaf.dtype for leaf in leaves} == {np.dtype(jnp.bfloat16)}
    return peak_bytes / sum(leaf.nbytes for leaf in leaves)


@pytest.mark.extra
def test_safetensors_are_loaded_in_little_more_than_their_size(checkpoint: Path) -> None:
    assert peak(checkpoint) < MAX_RATIO


@pytest.mark.extra
@pytest.mark.parametrize("dtype", ["F32", "Q8_0"])
def test_gguf_file_is_loaded_in_little_more_than_its_size(
    tmp_path: Path, checkpoint: Path, dtype: str
) -> None:
    (checkpoint / "tokenizer.json").write_text(models.tokenizer())
    file = gguf_writing.write(checkpoint, tmp_path / "model.gguf", dtype=dtype)

    assert peak(fetch(file)) < MAX_RATIO
