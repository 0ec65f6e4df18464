"""What cannot be loaded, scored or continued is told in one line with exit code 2, before any work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from motif_jax import language
from motif_jax.language.config import FILE
from motif_jax.language.weights import INDEX, SINGLE
from motif_jax.stages import prompted_texts as stage
from motif_jax.support import resources
from motif_jax.support.errors import UserError
from tests.language import models

# Files in the place of a model's, None for one that is not there, and words of the line.
BROKEN: list[tuple[dict[str, str | None], str]] = [
    ({FILE: None}, "config.json"),
    ({SINGLE: None}, "has no weights"),
    ({"tokenizer.json": None}, "tokenizer.json"),
    ({INDEX: '{"weight_map": ["model.safetensors"]}'}, "weight_map"),
    ({INDEX: '{"weight_map": {"a": 5}}'}, "weight_map"),
    ({FILE: "{"}, "config.json"),
    ({"tokenizer.json": "{"}, "tokenizer.json"),
    ({FILE: '{"model_type": "mamba"}'}, "mamba"),
    ({FILE: json.dumps(models.recipes.CONFIGS["roberta"])}, "roberta"),
    ({"tokenizer.json": models.tokenizer(90)}, "belongs to another model"),
    ({SINGLE: "PK" + "0" * 100}, "safetensors"),
    ({SINGLE: None, "pytorch_model.bin": ""}, "safe_serialization=True"),
]
PROMPTS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "go " * 60, "candidates": ["left"]}, "48 positions"),
    ({"prompt": "", "candidates": ["left"]}, "no tokens"),
    ({"prompt": "go", "candidates": ["left", "right", "left"]}, "same tokens"),
    ({"prompt": "go", "candidates": ["left", ""]}, "no tokens"),
]


def check(name: str, folder: Path, at: Path, content: str, **values: Any) -> str:
    (at / "prompts.jsonl").write_text(content)
    config = resources.config(name)
    config.update(model=str(folder), file=str(at / "prompts.jsonl"), **values)
    with pytest.raises(UserError) as raised:
        stage.check(config, at / "run")
    assert not (at / "run").exists()
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(("files", "words"), BROKEN)
def test_folders_that_are_no_models(worded: Path, tmp_path: Path, files: dict[str, Any], words: str) -> None:
    folder = shutil.copytree(worded, tmp_path / "model")
    for name, content in files.items():
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_text(content)
    good = '{"prompt": "go", "candidates": ["left", "right"]}\n'
    assert words in check("score_text", folder, tmp_path, good)
    if words != "roberta":
        with pytest.raises(UserError, match=words):
            language.load(folder)


@pytest.mark.parametrize(("question", "words"), PROMPTS)
def test_texts_that_do_not_fit(worded: Path, tmp_path: Path, question: dict[str, Any], words: str) -> None:
    rows = ({"prompt": "go", "candidates": ["left", "right"]}, question)
    content = "".join(json.dumps(row) + "\n" for row in rows)
    assert words in check("score_text", worded, tmp_path, content)
    if question["candidates"] == ["left"]:
        assert words in check("generate_text", worded, tmp_path, content, most=4)
    model = language.load(worded)
    with pytest.raises(UserError, match=words):
        model.score([question["prompt"]], question["candidates"])


@pytest.mark.parametrize("texts", [["go \ud800", "left"], ["go", "\udc00"]])
def test_half_a_character_is_told_with_its_line(worded: Path, tmp_path: Path, texts: list[str]) -> None:
    content = '{"prompt": "go"}\n' + json.dumps({"prompt": texts[0], "candidates": texts[1:]})
    assert "line 2: half of a character" in check("score_text", worded, tmp_path, content)
