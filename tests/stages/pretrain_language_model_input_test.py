"""What cannot be trained is said before any work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from motif_jax.language import footprint
from motif_jax.stages import pretrain_language_model as stage
from motif_jax.support.errors import UserError
from tests import texts
from tests.stages.pretraining import config_of, train


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.write(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a GPT-2 of wide enough layers for nf4."""
    return train(
        text,
        tmp_path_factory.mktemp("run") / "r",
        **{"model.width": 64, "tokenizer.vocab_size": 290, "steps": 30, "evaluate_every": 15},
    )


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


def test_empty_and_short_texts_and_foreign_tokenizers_are_refused(
    trained: Path, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match="there is no text in it"):
        stage.check(config_of(tmp_path / "empty.txt"), tmp_path / "r")
    (tmp_path / "short.txt").write_text("the red key opens the red door\n\nthe end\n")
    with pytest.raises(UserError, match=r"none to (hold out|learn from).*share"):
        stage.run(config_of(tmp_path / "short.txt"), tmp_path / "short")
    (tmp_path / "same.txt").write_text("\n\n".join(["the red key"] * 40))
    with pytest.raises(UserError, match=r"fewer than the 65 of a window"):
        stage.run(config_of(tmp_path / "same.txt", length=64), tmp_path / "same")
    stage.check(
        config_of(tmp_path / "same.txt"), tmp_path / "same"
    )  # a corrected command may have the folder
    # Tokens that another tokenizer has made, and a tokenizer of more tokens than its model has.
    other = tmp_path / "other"
    shutil.copytree(trained / "tokenizer", other)
    values = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(
        values.replace("<|endoftext|>", "<|end_of_text|>").replace("<|end_of_text|>", "<|endoftext|>") + "\n"
    )
    config = config_of(
        text, **{"texts": None, "tokens": str(trained / "tokens"), "tokenizer.folder": str(other)}
    )
    with pytest.raises(UserError, match="is made by another tokenizer"):
        stage.check(config, tmp_path / "r")
    # Tokens of longer items than a row.
    config.update_from_flattened_dict(
        {"tokenizer.folder": str(trained / "tokenizer"), "packing": "items", "length": 4}
    )
    with pytest.raises(UserError, match=r"config\.length=4: must be at least \d+: items of config\.tokens"):
        stage.check(config, tmp_path / "r")
    model = tmp_path / "model"
    shutil.copytree(trained / "model", model)
    values = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**values, "vocab_size": 280}))
    with pytest.raises(UserError, match="290 tokens, the model beside it 280"):
        stage.check(config_of(text, **{"model.folder": str(model)}), tmp_path / "r")
