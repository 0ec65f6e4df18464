"""Fingerprints of model folders."""

from __future__ import annotations

import json

import pytest

from motif_jax.motif.annotation import model_files


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    weight = {"dtype": "U8", "shape": [3 << 20], "data_offsets": [0, 3 << 20]}
    header = json.dumps({"weight": weight}).encode()
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(3 << 20)
    )
    return folder


def test_fingerprint_follows_the_content_and_not_the_place(folder, tmp_path):
    before = model_files.revision(str(folder), None)
    moved = folder.rename(tmp_path / "moved")
    assert model_files.revision(str(moved), None) == before
    (moved / "model.safetensors").write_bytes(
        (moved / "model.safetensors").read_bytes()[:-1] + b"x"
    )
    changed = model_files.revision(str(moved), None)
    (moved / "tokenizer.json").write_text('{"a": 1}')
    assert len({before, changed, model_files.revision(str(moved), None)}) == 3


def test_a_change_in_the_middle_of_weights_is_another_model(folder):
    """As of a training of the middle layers: embeddings lie at the ends of many files."""
    weights = folder / "model.safetensors"
    content = bytearray(16 << 20)
    weights.write_bytes(content)
    before = model_files.fingerprint(folder)
    content[5 << 20 : 10 << 20] = b"\1" * (5 << 20)
    weights.write_bytes(content)
    assert model_files.fingerprint(folder) != before
