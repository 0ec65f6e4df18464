"""What cannot be trained is said before any work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.lm import footprint, objectives
from motif_jax.lm import pretrain_language_model as stage
from tests import texts
from tests.lm import models
from tests.lm.pretraining import config_of
from tests.refusals import refuses


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.write(tmp_path_factory.mktemp("texts"))


def test_a_model_too_large_for_a_device_is_refused(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"lora.patterns": "*/attention/*", "lora.base": "bfloat16"}
    monkeypatch.setattr(footprint, "device_memory", lambda: 100_000_000)
    stage.check(config_of(text, **more), tmp_path)
    monkeypatch.setattr(footprint, "device_memory", lambda: 100_000)
    with pytest.raises(UserError, match=r"GB a device .*config\.sharding\.fsdp"):
        stage.check(config_of(text, **more), tmp_path)


def test_a_folder_without_its_weights_is_refused(text: Path, tmp_path: Path) -> None:
    folder = models.write(tmp_path / "model", "gpt2")
    (folder / "tokenizer.json").write_text(models.tokenizer())
    values = {"model.folder": str(folder)}
    stage.check(config_of(text, **values), tmp_path / "run")

    (folder / "model.safetensors").unlink()

    with refuses(f"{folder} has no weights"):
        stage.check(config_of(text, **values), tmp_path / "run")


def test_a_part_of_a_masked_head_is_refused(text: Path, tmp_path: Path) -> None:
    folder = models.write(tmp_path / "model", "roberta")
    (folder / "tokenizer.json").write_text(models.tokenizer(more=["<mask>"]))
    values = {"model.folder": str(folder)}
    stage.check(config_of(text, **values), tmp_path / "run")

    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "lm_head.bias": np.ones(3, np.float32)}, folder / "model.safetensors")

    with refuses("the head for masked tokens has no lm_head.dense.weight, lm_head.dense.bias"):
        stage.check(config_of(text, **values), tmp_path / "run")


def test_more_spans_than_sentinels_are_refused(text: Path, tmp_path: Path) -> None:
    values = {"model.architecture": "t5", "tokenizer.vocab_size": 400, "packing": "windows"}
    longest = 1809
    objectives.check_spans(longest, 100)
    with refuses("config.length=1810"):
        objectives.check_spans(longest + 1, 100)

    with refuses(f"config.length=2048: must be at most {longest}: a window has 114 spans"):
        stage.check(config_of(text, **values, length=2048), tmp_path / "run")


@pytest.mark.parametrize("kind", ["jsonl", "dialogues"])
def test_prompts_are_refused_where_all_of_a_window_is_learned(
    text: Path, tmp_path: Path, kind: str
) -> None:
    """They would be learned, those of dialogues once for each action behind them."""
    path = texts.write(tmp_path, prompts=True)
    if kind == "dialogues":
        path = path.with_suffix(".parquet")
        dialogue = Dialogue(("here", "a key", "there", "a door"), (None, 0.0, None, 1.0), True)
        parquet.write(path, [Dialogues.of([dialogue] * 8)], {})
    values = {"texts": str(text), "length": 4, "held_out.texts": str(path)}
    for architecture in ("gpt2", "roberta", "t5"):
        more = {"model.architecture": architecture, "tokenizer.vocab_size": 400}
        with pytest.raises(
            UserError, match=r"config\.packing=windows: must be 'items' .*has prompts"
        ):
            stage.check(config_of(text, **values, **more), tmp_path / "r")
    stage.check(config_of(text, **values, packing="items"), tmp_path / "r")
