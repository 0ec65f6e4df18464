"""Fingerprints of model folders, and what is checked of them before they are read."""

from __future__ import annotations

import json
import os

import pytest

from motif_jax.labels import model_files
from motif_jax.support.errors import UserError


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    weight = {"dtype": "U8", "shape": [3 << 20], "data_offsets": [0, 3 << 20]}
    header = json.dumps({"weight": weight}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(3 << 20))
    return folder


def test_fingerprint_follows_the_content_and_not_the_place(folder, tmp_path):
    before = model_files.revision(str(folder), None)
    moved = folder.rename(tmp_path / "moved")
    assert model_files.revision(str(moved), None) == before
    (moved / "model.safetensors").write_bytes((moved / "model.safetensors").read_bytes()[:-1] + b"x")
    changed = model_files.revision(str(moved), None)
    (moved / "tokenizer.json").write_text('{"a": 1}')
    assert len({before, changed, model_files.revision(str(moved), None)}) == 3


FAULTS = {"config.json": "no config", "model.safetensors": "no weights", "tokenizer.json": "no tokenizer"}


@pytest.mark.parametrize("gone", FAULTS)
def test_folders_that_are_no_model(folder, gone):
    model_files.check_model(str(folder), "vllm.model")
    (folder / gone).unlink()
    with pytest.raises(UserError, match=FAULTS[gone]):
        model_files.check_model(str(folder), "vllm.model")
    with pytest.raises(UserError, match=r"config\.vllm\.model: give the name of a chat model, or its folder"):
        model_files.check_model("", "vllm.model")


@pytest.mark.parametrize("size", [0, 5, 3 << 20])
def test_weights_that_are_cut_off(folder, size):
    os.truncate(folder / "model.safetensors", size)
    with pytest.raises(UserError, match=r"model.safetensors is cut off|no weights"):
        model_files.check_model(str(folder), "vllm.model")
