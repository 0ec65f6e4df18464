"""A tokenizer.json has the tokens and blanks that stand beside it, as in transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from motif_jax.core import tokenizer_files
from tests.core import make_tokenizer_folders

# What transformers makes of texts (`make_tokenizer_folders`).
REFERENCE = json.loads(Path(__file__).with_name("tokenizer_folders.json").read_text())


@pytest.mark.parametrize("name", REFERENCE)
def test_tokens_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    file = make_tokenizer_folders.write(tmp_path / "model", make_tokenizer_folders.cases()[name])

    backend = tokenizer_files.read(file)
    rows = [encoding.ids for encoding in backend.encode_batch(list(make_tokenizer_folders.TEXTS))]

    assert rows == REFERENCE[name]["tokens"]
    assert backend.decode_batch(rows) == REFERENCE[name]["texts"]


def test_what_was_read_has_the_same_tokens_without_the_files_beside_it(tmp_path: Path) -> None:
    case = make_tokenizer_folders.cases()["added, some special"]
    backend = tokenizer_files.read(make_tokenizer_folders.write(tmp_path / "model", case))
    backend.save(str(tmp_path / "tokenizer.json"))

    again = tokenizer_files.read(tmp_path / "tokenizer.json")

    assert again.to_str() == backend.to_str()
