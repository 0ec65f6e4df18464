"""Digests of files and tensors, and the damage that they tell of a sealed folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core import digests

TENSORS = {"b": np.arange(3, dtype=np.int8), "a": np.ones((1, 2), np.float32)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, each with its name as its content."""
    (tmp_path / "part").mkdir()
    for name in ("part/a", "b"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
def sealed(folder: Path) -> Path:
    digests.seal(folder)
    return folder


def test_a_folder_that_was_never_sealed_has_no_digest(folder: Path) -> None:
    assert digests.of_sealed(folder) is None
    assert digests.damage(folder) == "digests.json is missing"


def test_a_seal_has_the_digest_of_every_file(sealed: Path) -> None:
    content = json.loads((sealed / digests.FILE).read_text())

    expected = {name: digests.of_bytes(name.encode()) for name in ("part/a", "b")}
    assert content == {"blake2b": expected}


def test_a_digest_is_the_same_in_every_version(folder: Path) -> None:
    assert digests.of_bytes(b"b") == "96172b4c53372cd10faddc821bfe0318"
    assert digests.of_input(folder / "b") == "96172b4c53372cd10faddc821bfe0318"


def test_the_digest_of_a_folder_is_that_of_its_seal(sealed: Path) -> None:
    assert digests.of_sealed(sealed) == digests.of_file(sealed / digests.FILE)


def test_a_file_that_came_later_is_no_damage(sealed: Path) -> None:
    (sealed / "later").touch()

    assert digests.damage(sealed) is None


def test_a_changed_file_is_named(sealed: Path) -> None:
    (sealed / "b").write_text("c")

    assert digests.damage(sealed) == "b is not as it was written"


def test_damage_is_looked_for_below_a_prefix(sealed: Path) -> None:
    (sealed / "b").write_text("c")

    assert digests.damage(sealed, "part/") is None


def test_a_file_that_is_gone_is_named(sealed: Path) -> None:
    (sealed / "b").unlink()

    assert digests.damage(sealed) == "b cannot be read: No such file or directory"


@pytest.mark.parametrize(
    "content", ["{", '{"blake2b": {}}', '{"blake2b": 1}', '{"other": {"a": ""}}']
)
def test_a_damaged_seal_is_named(sealed: Path, content: str) -> None:
    (sealed / digests.FILE).write_text(content)

    assert digests.damage(sealed) == "digests.json is damaged"


def test_the_digest_of_tensors_is_the_same_in_every_version() -> None:
    assert digests.of_tensors("x", TENSORS) == "6289bc99ac7d2b4d97e8747e0917dd26"


def test_a_file_of_tensors_does_not_depend_on_their_order() -> None:
    data = digests.safetensors_of("about", "x", TENSORS)

    assert data == digests.safetensors_of("about", "x", dict(reversed(TENSORS.items())))
    assert len(data) == 203
    assert digests.of_bytes(data) == "7fd5d889c43603e25894f503c6408682"
