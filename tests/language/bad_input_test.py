"""What cannot be loaded, scored or continued is told in one line with exit code 2, before any work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motif_jax import language
from motif_jax.language.config import FILE
from motif_jax.language.weights import INDEX, SINGLE
from motif_jax.stages import prompted_texts as stage
from motif_jax.support import resources
from motif_jax.support.errors import UserError
from tests.language import models as checkpoints
from tests.language.text_test import train


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = checkpoints.write(tmp_path_factory.mktemp("model") / "gpt2", "gpt2")
    train(folder)
    return folder


def drop(name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).unlink()


def put(name: str, content: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_text(content)


def config_with(**values: Any) -> Callable[[Path], Any]:
    of = {**checkpoints.recipes.CONFIGS["gpt2"], **values}
    return put(FILE, json.dumps(of))


BROKEN: list[tuple[str, Callable[[Path], Any], str]] = [
    ("no config", drop(FILE), "config.json"),
    ("no weights", drop(SINGLE), "has no weights"),
    ("no tokenizer", drop("tokenizer.json"), "tokenizer.json"),
    ("a list of shards", put(INDEX, '{"weight_map": ["model.safetensors"]}'), "weight_map"),
    ("no name of a shard", put(INDEX, '{"weight_map": {"a": 5}}'), "weight_map"),
    ("torn config", put(FILE, "{"), "config.json"),
    ("torn tokenizer", put("tokenizer.json", "{"), "tokenizer.json"),
    ("architecture", config_with(model_type="mamba"), "mamba"),
    ("encoder alone", config_with(model_type="roberta", hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                  intermediate_size=8, max_position_embeddings=40), "roberta"),
    ("other vocabulary", lambda folder: train(folder, size=90), "belongs to another model"),
    ("no safetensors", put(SINGLE, "PK" + "0" * 100), "safetensors"),
    ("pickle", lambda folder: (folder / SINGLE).rename(folder / "pytorch_model.bin"), "safe_serialization=True"),
]  # fmt: skip
PROMPTS: list[tuple[str, dict[str, Any], str]] = [
    ("long", {"prompt": "go " * 60, "candidates": ["left"]}, "48 positions"),
    ("nothing", {"prompt": "", "candidates": ["left"]}, "no tokens"),
    ("alike", {"prompt": "go", "candidates": ["left", "right", "left"]}, "same tokens"),
    ("to nothing", {"prompt": "go", "candidates": ["left", ""]}, "no tokens"),
]


def check(name: str, folder: Path, questions: Path, workdir: Path, **values: Any) -> str:
    config = resources.config(name)
    config.model, config.file = str(folder), str(questions)
    config.update(values)
    with pytest.raises(UserError) as raised:
        stage.check(config, workdir)
    said = str(raised.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_folders_that_are_no_models(
    made: Path, tmp_path: Path, change: Callable[[Path], None], words: str
) -> None:
    folder = shutil.copytree(made, tmp_path / "model")
    change(folder)
    questions = tmp_path / "prompts.jsonl"
    questions.write_text('{"prompt": "go", "candidates": ["left", "right"]}\n')
    assert words in check("score_text", folder, questions, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    if "roberta" not in words:
        with pytest.raises(UserError, match=words):
            language.load(folder)


@pytest.mark.parametrize(
    ("question", "words"), [case[1:] for case in PROMPTS], ids=[case[0] for case in PROMPTS]
)
def test_texts_that_do_not_fit(made: Path, tmp_path: Path, question: dict[str, Any], words: str) -> None:
    questions = tmp_path / "prompts.jsonl"
    good = {"prompt": "go", "candidates": ["left", "right"]}
    questions.write_text("".join(json.dumps(row) + "\n" for row in (good, question)))
    assert words in check("score_text", made, questions, tmp_path / "run")
    if question["candidates"] == ["left"]:
        assert words in check("generate_text", made, questions, tmp_path / "run", most=4)
    model = language.load(made)
    with pytest.raises(UserError, match=words):
        model.score([question["prompt"]], question["candidates"])


def test_a_file_that_nobody_has_named_is_asked_for(made: Path, tmp_path: Path) -> None:
    config = resources.config("score_text")
    config.model = str(made)
    with pytest.raises(UserError, match=r"config\.file must name a file of prompts"):
        stage.check(config, tmp_path / "run")


@pytest.mark.parametrize(
    "texts", ['"prompt": "go \\ud800"', '"prompt": "go", "candidates": ["left", "\\udc00"]']
)
def test_half_a_character_is_told_with_its_line(made: Path, tmp_path: Path, texts: str) -> None:
    questions = tmp_path / "prompts.jsonl"
    questions.write_text('{"prompt": "go"}\n{' + texts + "}\n")
    assert "line 2: half of a character" in check("score_text", made, questions, tmp_path / "run")


def test_lists_of_candidates_are_for_all_or_for_each(made: Path) -> None:
    model = language.load(made)
    with pytest.raises(UserError, match="2 lists of candidates for 1 prompts"):
        model.score(["go"], [["left"], ["right"]])
    with pytest.raises(UserError, match="no candidates"):
        model.score(["go"], [])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"stops": "a||b"}, "config.stops="),
        ({"most": 60}, "48 positions"),
        ({"sampling": {"top_p": 0.0}}, "config.sampling.top_p=0"),
        ({"beams": True, "sampling": {"greedy": False}}, "greedy=False: must be True with config.beams"),
        ({"beams": True, "sampling": {"temperature": 0.5}}, "temperature=0.5: must be 1.0 with config.beams"),
        ({"sampling": {"top_k": 3}}, "top_k=3: must be 0 with config.beams or config.sampling.greedy"),
        ({"count": 3}, "config.count=3: must be 1 with config.sampling.greedy"),
    ],
)
def test_settings_that_make_no_sense(made: Path, tmp_path: Path, values: dict[str, Any], words: str) -> None:
    questions = tmp_path / "prompts.txt"
    questions.write_text("go\n")
    assert words in check("generate_text", made, questions, tmp_path / "run", **values)
