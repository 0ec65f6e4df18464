"""Fingerprints of model folders, and what is checked of them before they are read."""

from __future__ import annotations

import functools
import json

import pytest

from motif_jax.motif.annotation import model_files
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text


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


def test_folders_that_are_no_model(folder, tmp_path, record):
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    check = functools.partial(outcome_text, model_files.check_model, key="vllm.model", folder=tmp_path)
    lines = [check(model) for model in (str(folder), "", "some/model", "./none")]
    for name, content in sorted(kept.items()):
        for size in (None, 0, 5, len(content) - 1, len(content)):
            if size is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(content[:size])
            lines += [f"{name} {size} {check(str(folder))}"]
    assert_matches_packed_recording("model_folders", {"lines": "\n".join(lines)}, record)
