"""Fingerprints of model folders, and what is checked of them before they are read."""

from __future__ import annotations

import json

import pytest

from motif_jax.core.errors import UserError
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


def check(model):
    model_files.check_model(str(model), key="vllm.model")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("", r"config\.vllm\.model: give the name of a chat model, or its folder"),
        ("./none", r"config\.vllm\.model=\./none: there is no such folder"),
        ("none.gguf", r"config\.vllm\.model=none\.gguf: there is no such file"),
    ],
)
def test_no_name_and_no_folder_is_refused(model, words):
    with pytest.raises(UserError, match=words):
        check(model)


def test_a_gguf_file_is_a_model(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF and so on")
    check(file)


def test_file_that_is_no_gguf_file_is_refused(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"PK and so on")
    with pytest.raises(UserError, match=r"model\.gguf: is not a GGUF file, or is damaged"):
        check(file)


def test_a_name_or_a_whole_folder_is_a_model(folder):
    check(folder)
    check("some/model")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("config.json", "not a model folder, it has no config.json"),
        ("model.safetensors", r"the folder has no weights \(\*\.safetensors, \*\.bin"),
        ("tokenizer.json", "the folder has no tokenizer"),
    ],
)
def test_a_folder_without_a_file_of_a_model_is_refused(folder, name, words):
    (folder / name).unlink()
    with pytest.raises(UserError, match=rf"config\.vllm\.model=.*: {words}"):
        check(folder)


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "the folder has no weights"), (5, "is cut off or damaged"), (-1, "is cut off or damaged")],
)
def test_weights_that_are_cut_off_are_refused(folder, size, words):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UserError, match=words):
        check(folder)
