"""Tiny checkpoints, written once for all tests of language models."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.lm import models


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The model and the parameters of a tiny checkpoint, by its name."""
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    return functools.cache(lambda name: models.load(models.write(folder / name, name)))


@pytest.fixture(scope="session")
def worded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny GPT-2 with a tokenizer."""
    folder = models.write(tmp_path_factory.mktemp("worded"), "gpt2")
    (folder / "tokenizer.json").write_text(models.tokenizer())
    return folder
