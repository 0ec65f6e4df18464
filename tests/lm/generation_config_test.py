"""generation_config.json: its end tokens end a text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from motif_jax import lm as language
from motif_jax.lm import config
from tests.lm import models


@pytest.fixture
def folder(worded: Path, tmp_path: Path) -> Path:
    """A copy of a tiny GPT-2 with a tokenizer."""
    return shutil.copytree(worded, tmp_path / "model")


def write(folder: Path, **values: Any) -> None:
    (folder / config.GENERATION_FILE).write_text(json.dumps(values))


@pytest.mark.parametrize(("written", "ends"), [(7, (7,)), ([7, 9], (7, 9))])
def test_end_tokens_replace_those_of_the_config(
    folder: Path, written: Any, ends: tuple[int, ...]
) -> None:
    write(folder, eos_token_id=written)
    assert config.read(folder).end_ids == ends


@pytest.mark.parametrize("values", [{}, {"eos_token_id": None}, {"temperature": 0.5}])
def test_without_end_tokens_those_of_the_config_stay(folder: Path, values: dict[str, Any]) -> None:
    before = config.read(folder).end_ids
    write(folder, **values)
    assert config.read(folder).end_ids == before


@pytest.mark.slow
def test_text_ends_at_an_end_token_of_the_list(folder: Path) -> None:
    text = language.load(folder).generate(["go to"], max_new_tokens=8)[0][0]
    tokens = language.load(folder).tokenizer.encode([text], special=False)[0]
    write(folder, eos_token_id=[59, tokens[2]])
    shorter = language.load(folder).generate(["go to"], max_new_tokens=8)[0][0]
    first = tokens.index(tokens[2])
    assert shorter == language.load(folder).tokenizer.decode(tokens[:first])
    assert len(shorter) < len(text)


@pytest.mark.extra
def test_text_without_an_end_token_runs_to_its_limit(folder: Path) -> None:
    model = language.load(folder)
    tokens = model.tokenizer.encode(model.generate(["go to"], 8)[0], special=False)[0]
    values = json.loads((folder / config.FILE).read_text())
    for end, stays in ((tokens[2], False), (None, True)):
        (folder / config.FILE).write_text(json.dumps({**values, "eos_token_id": end}))
        text = language.load(folder).generate(["go to"], 8)[0][0]
        assert (text == model.tokenizer.decode(tokens)) is stays


def test_start_token_of_an_encoder_decoder_is_read(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "t5")
    write(folder, decoder_start_token_id=5)
    assert config.read(folder).start_id == 5
