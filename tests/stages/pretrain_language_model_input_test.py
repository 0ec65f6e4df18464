"""What cannot be trained is said before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from motif_jax.language import footprint
from motif_jax.stages import pretrain_language_model as stage
from motif_jax.support.errors import UserError
from tests import texts
from tests.stages.pretraining import config_of


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.write(tmp_path_factory.mktemp("texts"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"texts": None}, r"config\.texts=None: must be files"),
        ({"texts": "/nowhere"}, "no such file"),
        ({"model.architecture": "bert"}, r"architecture='bert': must be one of t5"),
        ({"model.width": 15}, r"width=15: must be a multiple of the 2 heads"),
        ({"model.architecture": "llama", "model.width": 6, "model.heads": 2}, "a head of 3 is odd"),
        ({"model.key_value_heads": 1}, "key_value_heads=1"),
        ({"batch_size": 6, "accumulate": 4}, r"batch_size=6: must be a multiple of 4"),
        ({"sharding.fsdp": 2}, r"sharding=\{'fsdp': 2, 'tensor': 1\}: must be sizes whose product divides the 1"),
        ({"sharding.tensor": 0}, r"sharding\.tensor=0"),
        ({"objective": "spans"}, r"objective='spans': must be one of causal for gpt2"),
        ({"model.architecture": "t5", "packing": "items", "tokenizer.vocab_size": 400}, "objective=prefix"),
        ({"tokenizer.vocab_size": 200}, r"vocab_size=200: must be at least 257"),
        ({"lora.patterns": "*/q_proj"}, r"'\*/q_proj' matches no linear layer"),
        ({"lora.base": "int8"}, r"lora\.base='int8': must be 'float32' without config\.lora\.patterns"),
        ({"lora.base": "nf4", "lora.patterns": "*"}, "a multiple of 64 inputs, this model has some of 16"),
        ({"length": 100_000, "model.max_length": 200_000}, "bytes are fewer than the 100000 tokens of a window"),
        ({"length": 16, "model.max_length": 8}, r"length=16: must be at most the 8 positions"),
        ({"optimizer.warmup_steps": 6}, "warmup_steps=6"),
        ({"model.folder": "FOLDER", "tokenizer.folder": "FOLDER"}, "config.model.folder has a tokenizer"),
        ({"tokens": "FOLDER", "texts": None}, "config.tokenizer.folder"),
        ({"held_out.share": 0.0}, r"held_out\.share=0\.0"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_said_before_any_work(
    text: Path, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    given = {key: str(tmp_path) if value == "FOLDER" else value for key, value in given.items()}
    config = config_of(text, **given)
    with pytest.raises(UserError, match=said):
        stage.check(config, tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("more", [{}, {"lora.patterns": "*/attention/*", "lora.base": "bfloat16"}])
def test_a_model_that_no_device_holds_is_refused_with_what_it_takes(
    text: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    monkeypatch.setattr(footprint, "device_memory", lambda: 100_000_000)
    stage.check(config_of(text, **more), None)
    monkeypatch.setattr(footprint, "device_memory", lambda: 100_000)
    with pytest.raises(UserError, match=r"GB a device .*config\.sharding\.fsdp"):
        stage.check(config_of(text, **more), None)
