"""Digests of files and tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from motif_jax.core import digests

TENSORS = {"b": np.arange(3, dtype=np.int8), "a": np.ones((1, 2), np.float32)}


def test_a_digest_is_the_same_in_every_version(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("b")

    assert digests.of_bytes(b"b") == "96172b4c53372cd10faddc821bfe0318"
    assert digests.of_input(tmp_path / "b") == "96172b4c53372cd10faddc821bfe0318"


def test_the_digest_of_tensors_is_the_same_in_every_version() -> None:
    assert digests.of_tensors("x", TENSORS) == "6289bc99ac7d2b4d97e8747e0917dd26"


def test_a_file_of_tensors_does_not_depend_on_their_order() -> None:
    data = digests.safetensors_of("about", "x", TENSORS)

    assert data == digests.safetensors_of("about", "x", dict(reversed(TENSORS.items())))
    assert len(data) == 203
    assert digests.of_bytes(data) == "7fd5d889c43603e25894f503c6408682"
