"""What cannot be trained is said before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from motif_jax.datasets.dialogues import parquet
from motif_jax.datasets.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.language import footprint
from motif_jax.stages import pretrain_language_model as stage
from motif_jax.support.errors import UserError
from tests import texts
from tests.stages.pretraining import config_of


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.write(tmp_path_factory.mktemp("texts"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [({"model.architecture": "llama", "model.width": 6, "model.heads": 2}, "gives heads of width 3"), ({"sharding.fsdp": 2}, r"sharding=\{'fsdp': 2, 'tensor': 1\}: must be sizes whose product divides the 1"), ({"model.architecture": "t5", "packing": "items", "tokenizer.vocab_size": 400}, "objective=prefix"), ({"lora.patterns": "*/q_proj"}, r"'\*/q_proj' matches no linear layer"), ({"lora.base": "nf4", "lora.patterns": "*"}, "a multiple of 64 inputs, this model has some of 16"), ({"length": 16, "model.max_length": 8}, r"length=16: must be at most the 8 positions"), ({"model.folder": "FOLDER", "tokenizer.folder": "FOLDER"}, "config.model.folder has a tokenizer"), ({"tokenizer.phrases": True, "tokenizer.phrase": "("}, r"tokenizer\.phrase=\(: is no regular expression")],
)  # fmt: skip
def test_what_cannot_work_is_said_before_any_work(
    text: Path, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    given = {key: str(tmp_path) if value == "FOLDER" else value for key, value in given.items()}
    config = config_of(text, **given)
    with pytest.raises(UserError, match=said):
        stage.check(config, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_model_that_no_device_holds_is_refused_with_what_it_takes(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"lora.patterns": "*/attention/*", "lora.base": "bfloat16"}
    monkeypatch.setattr(footprint, "device_memory", lambda: 100_000_000)
    stage.check(config_of(text, **more), None)
    monkeypatch.setattr(footprint, "device_memory", lambda: 100_000)
    with pytest.raises(UserError, match=r"GB a device .*config\.sharding\.fsdp"):
        stage.check(config_of(text, **more), None)


@pytest.mark.parametrize("kind", ["jsonl", "dialogues"])
def test_prompts_are_refused_where_all_of_a_window_is_learned(text: Path, tmp_path: Path, kind: str) -> None:
    """They would be learned, those of dialogues once for each action behind them."""
    path = texts.write(tmp_path, prompts=True)
    if kind == "dialogues":
        path = path.with_suffix(".parquet")
        said = Dialogue(("here", "a key", "there", "a door"), (None, 0.0, None, 1.0), True)
        parquet.write(path, [Dialogues.of([said] * 8)], {})
    given = {"texts": str(text), "length": 4, "held_out.texts": str(path)}
    for architecture in ("gpt2", "roberta", "t5"):
        more = {"model.architecture": architecture, "tokenizer.vocab_size": 400}
        with pytest.raises(UserError, match=r"config\.packing=windows: must be 'items' .*has prompts"):
            stage.check(config_of(text, **given, **more), tmp_path / "r")
    stage.check(config_of(text, **given, packing="items"), tmp_path / "r")
