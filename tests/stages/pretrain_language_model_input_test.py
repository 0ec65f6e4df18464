"""What cannot be trained is said before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax.datasets.dialogues import parquet
from motif_jax.datasets.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.language import footprint
from motif_jax.stages import pretrain_language_model as stage
from motif_jax.support.errors import UserError
from motif_jax.trainers import text_data
from tests import texts
from tests.stages.pretraining import config_of


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.write(tmp_path_factory.mktemp("texts"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"texts": None}, r"config\.texts=None: must be files"),
        ({"model.architecture": "llama", "model.width": 6, "model.heads": 2}, "a head of 3 is odd"),
        ({"batch_size": 6, "accumulate": 4}, r"batch_size=6: must be a multiple of 4"),
        ({"sharding.fsdp": 2}, r"sharding=\{'fsdp': 2, 'tensor': 1\}: must be sizes whose product divides the 1"),
        ({"objective": "spans"}, r"objective='spans': must be one of causal for gpt2"),
        ({"model.architecture": "t5", "packing": "items", "tokenizer.vocab_size": 400}, "objective=prefix"),
        ({"lora.patterns": "*/q_proj"}, r"'\*/q_proj' matches no linear layer"),
        ({"lora.base": "int8"}, r"lora\.base='int8': must be 'float32' without config\.lora\.patterns"),
        ({"lora.base": "nf4", "lora.patterns": "*"}, "a multiple of 64 inputs, this model has some of 16"),
        ({"length": 100_000, "model.max_length": 200_000}, "bytes are fewer than the 100000 tokens of a window"),
        ({"length": 16, "model.max_length": 8}, r"length=16: must be at most the 8 positions"),
        ({"model.folder": "FOLDER", "tokenizer.folder": "FOLDER"}, "config.model.folder has a tokenizer"),
        ({"tokens": "FOLDER", "texts": None}, "config.tokenizer.folder"),
        ({"tokenizer.phrases": True, "tokenizer.phrase": "("}, r"tokenizer\.phrase=\(: is no regular expression"),
        ({"model.attention": "comparing"}, r"attention='comparing': must be 'random' but for a T5 of at least 4"),
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


@pytest.mark.parametrize("kind", ["jsonl", "dialogues", "column"])
def test_prompts_are_refused_where_all_of_a_window_is_learned(text: Path, tmp_path: Path, kind: str) -> None:
    """They would be learned, those of dialogues once for each action behind them."""
    path = texts.write(tmp_path, prompts=True)
    if kind == "dialogues":
        path = path.with_suffix(".parquet")
        said = Dialogue(("here", "a key", "there", "a door"), (None, 0.0, None, 1.0), True)
        parquet.write(path, [Dialogues.of([said] * 8)], {})
    elif kind == "column":
        path = path.with_suffix(".parquet")
        pq.write_table(pa.table({"prompt": ["", "see"] * 30, "text": ["a key", "a door"] * 30}), path)
    given = {"texts": str(text), "length": 4, "held_out.texts": str(path)}
    for architecture in ("gpt2", "roberta", "t5"):
        more = {"model.architecture": architecture, "tokenizer.vocab_size": 400}
        with pytest.raises(UserError, match=r"config\.packing=windows: must be 'items' .*has prompts"):
            stage.check(config_of(text, **given, **more), tmp_path / "r")
    stage.check(config_of(text, **given, packing="items"), tmp_path / "r")


def test_a_prompt_that_is_met_late_ends_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    path = texts.write(tmp_path, count=100, prompts=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in rows) + json.dumps(rows[0]))
    config = config_of(path)
    stage.check(config, tmp_path / "r")
    with pytest.raises(UserError, match=r"config\.packing=windows"):
        stage.run(config, tmp_path / "r")
    assert not (tmp_path / "r/config.json").exists()


def test_tokens_with_prompts_are_refused_as_their_texts_are(tmp_path: Path) -> None:
    config = config_of(texts.write(tmp_path, prompts=True), packing="items", length=48)
    made = text_data.make_tokenizer(config, "gpt2", tmp_path / "tokenizer")
    assert text_data.prepare(config, tmp_path / "run", made, 0, 48, lambda: False)
    given = {"texts": None, "tokens": str(tmp_path / "run/tokens"), "tokenizer.folder": str(made)}
    stage.check(config_of(tmp_path, **given, packing="items", length=48), None)
    with pytest.raises(UserError, match=r"config\.packing=windows.*run/tokens/train has prompts"):
        stage.check(config_of(tmp_path, **given), None)


@pytest.mark.parametrize("key", ["text", "prompt"])
def test_half_a_character_is_told_with_its_line_and_leaves_nothing(tmp_path: Path, key: str) -> None:
    path = texts.write(tmp_path, count=100, prompts=True)
    lines, half = path.read_text().splitlines(), json.dumps({"text": "a key", key: "a \ud83d"})
    config = config_of(path, packing="items", length=48)
    path.write_text("\n".join([lines[0], half, *lines[1:]]))
    with pytest.raises(UserError, match=r"texts\.jsonl line 2: half of a character"):
        stage.check(config, tmp_path / "r")
    path.write_text("\n".join([*lines, half]))
    stage.check(config, tmp_path / "r")
    with pytest.raises(UserError, match=r"texts\.jsonl line 101: half of a character"):
        stage.run(config, tmp_path / "r")
    assert not (tmp_path / "r/config.json").exists()


def test_the_bytes_of_a_table_say_nothing_of_how_long_its_texts_are(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": ["the red key opens the red door. " * 200] * 40}), path)
    length = path.stat().st_size + 1
    stage.check(config_of(path, length=length), None)
    (tmp_path / "texts.txt").write_text("a" * (length - 1))
    with pytest.raises(UserError, match="bytes are fewer"):
        stage.check(config_of(tmp_path / "texts.txt", length=length), None)
