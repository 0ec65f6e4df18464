"""The files of a checkpoint: an index that is stale or wrong is one line that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from motif_jax.lm import weights
from motif_jax.lm.weights import INDEX, SINGLE, Tensors
from tests.lm import models

FIRST = "model-00001-of-00002.safetensors"
SECOND = "model-00002-of-00002.safetensors"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A checkpoint of two shards."""
    folder = models.write(tmp_path / "sharded", "llama")
    tensors = load_file(folder / SINGLE)
    names = sorted(tensors)
    shard_of = {name: (FIRST if number % 2 else SECOND) for number, name in enumerate(names)}
    for shard in (FIRST, SECOND):
        save_file(
            {name: tensors[name] for name in names if shard_of[name] == shard}, folder / shard
        )
    (folder / SINGLE).unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": shard_of}))
    return folder


def change_index(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / INDEX).read_text())
    shard_of = {**content["weight_map"], **changes}
    listed = {name: shard for name, shard in shard_of.items() if shard is not None}
    (folder / INDEX).write_text(json.dumps({"weight_map": listed}))


def test_one_file_is_read_beside_an_index_of_other_files(
    sharded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models.write(tmp_path / "single", "llama")
    changed = {name: tensor + 1 for name, tensor in load_file(tmp_path / "single" / SINGLE).items()}
    save_file(changed, sharded / SINGLE)

    tensors = Tensors(sharded)

    assert all((tensors.find(name) == changed[name]).all() for name in changed)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert all(name in lines[0] for name in (f"{SINGLE} is read", INDEX, FIRST, SECOND))


def test_index_of_the_one_file_is_read(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "llama")
    names = load_file(folder / SINGLE)
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(names, SINGLE)}))
    assert Tensors(folder).names == sorted(names)


def test_tensor_that_the_index_leaves_out_is_read(sharded: Path) -> None:
    name = Tensors(sharded).names[0]
    change_index(sharded, **{name: None})
    weights.load(sharded, weights.read_config(sharded))
