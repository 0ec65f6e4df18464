"""Reading PyTorch's checkpoints: what is in them, and that nothing in them runs."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.published import torch_file
from motif_jax.published.pickles import Unread
from motif_jax.published.torch_file import read_checkpoint, tensors
from tests import torch_files
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.torch_files import Storage, Tensor, tensor


@pytest.mark.parametrize("protocol", [2, 4])
def test_everything_plain_is_read(tmp_path, protocol):
    arrays = {
        "weight": np.arange(12, dtype="f").reshape(3, 4), "double": np.array([0.1, -2.5]), "ids": np.arange(5),
        "flag": np.array([True, False]), "half": np.float16([1.5, -2]), "scalar": np.float32(2.5).reshape(()),
    }  # fmt: skip
    content = {
        "model": OrderedDict((name, tensor(array)) for name, array in arrays.items()),
        "list": [1, -70000, 2**40, 1.5, None, True, "text", (1, 2, 3, 4), b"bytes"],
        "nested": {"a": {"b": tensor(np.ones(2, "f"))}, "mean": np.float64(0.25), "empty": {}},
    }
    found = read_checkpoint(torch_files.write(tmp_path / "a.pth", content, protocol=protocol))
    assert list(found["model"]) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found["model"][name], array)
        assert found["model"][name].dtype == array.dtype
    assert found["list"] == content["list"]
    assert found["nested"]["mean"] == 0.25
    assert [name for name, _ in tensors(found)] == [f"model.{name}" for name in arrays] + ["nested.a.b"]


def test_views_of_a_shared_storage(tmp_path):
    storage = Storage(np.arange(12, dtype="f"))
    content = {
        "transposed": Tensor(storage, 0, (4, 3), (1, 4)),
        "part": Tensor(storage, 5, (2, 2), (4, 1)),
        "wide": Tensor(Storage(np.array([0x3FC0, 0xC000], np.uint16), "BFloat16"), 0, (2,), (1,)),
        "none": Tensor(storage, 12, (0, 3), (3, 1)),
    }
    found = read_checkpoint(torch_files.write(tmp_path / "a.pth", content))
    np.testing.assert_array_equal(found["transposed"], np.arange(12).reshape(3, 4).T)
    np.testing.assert_array_equal(found["part"], [[5, 6], [9, 10]])
    np.testing.assert_array_equal(found["wide"], [1.5, -2.0])
    assert found["none"].shape == (0, 3)


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_in_the_file_runs(tmp_path):
    path = torch_files.write(tmp_path / "a.pth", {"x": Harmful(tmp_path / "made"), "y": 1, "s": Path("a")})
    found = read_checkpoint(path)
    assert not (tmp_path / "made").exists()
    assert found == {
        "x": Unread("posix.mkdir", (str(tmp_path / "made"),)), "y": 1, "s": Unread("pathlib.PosixPath", ("a",)),
    }  # fmt: skip


STORAGE = Storage(np.arange(12, dtype="f"))
# A tensor in the wrong place of its storage, or of the right one.
VIEWS = [
    (0, (13,), (1,)),
    (10, (2, 2), (1, 1)),
    (0, (2, 2), (-1, 1)),
    (-1, (2,), (1,)),
    (9, (2, 2), (1, 1)),
    (0, (12,), (0,)),
    (11, (), ()),
    (0, (3, 4), (4, 1)),
    (8, (2,), (3,)),
    (8, (2,), (4,)),
    (0, (-2,), (1,)),
    (0, (2,), (1, 1)),
]


def test_what_is_no_whole_checkpoint_is_refused(tmp_path, record):
    path, views = tmp_path / "a.pth", [Tensor(STORAGE, *view) for view in VIEWS]
    lines = [
        outcome_text(read_checkpoint, torch_files.write(path, {"t": view}), folder=tmp_path) for view in views
    ]
    good = torch_files.write(path, {"t": tensor(np.arange(6, dtype="f"))})
    with zipfile.ZipFile(good) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    pickled = parts["archive/data.pkl"]
    changes = [{"data.pkl": pickled[:cut]} for cut in range(0, len(pickled), 7)]
    for wrong in (b"ComplexStorage", b"ByteStorage\n", b"HalfStorage\n"):
        changes += [{"data.pkl": pickled.replace(b"FloatStorage" + wrong[14:], wrong)}]
    for change in (
        *changes,
        {"data.pkl": b"garbage"},
        {"data/0": b"\0" * 8},
        {"data.pkl": pickled.replace(b"storage", b"storing")},
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (parts | {f"archive/{name}": data for name, data in change.items()}).items():
                archive.writestr(name, content)
        lines += [outcome_text(read_checkpoint, path, folder=tmp_path)]
    path.write_bytes(pickle.dumps({"a": 1}))
    lines += [outcome_text(read_checkpoint, name, folder=tmp_path) for name in (path, tmp_path / "absent")]
    for name, kind in (("other", zipfile.ZIP_STORED), ("archive/data.pkl", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(path, "w", kind) as archive:
            archive.writestr(name, bytes(1000))
        lines += [outcome_text(read_checkpoint, path, folder=tmp_path)]
    assert_matches_packed_recording("torch_files", {"lines": "\n".join(lines)}, record)


def test_a_checkpoint_that_contains_itself_is_refused(monkeypatch):
    itself = {"a": [1]}
    itself["a"].append(itself)
    with pytest.raises(UserError, match=r"nested deeper than 50 levels, .* or contains itself"):
        list(tensors(itself))
    twice = [np.zeros(1, "f")]
    for _ in range(12):  # with each further one twice as many
        twice = [twice, twice]
    assert len(list(tensors(twice))) == 2**12
    monkeypatch.setattr(torch_file, "MOST_PARTS", 1000)
    with pytest.raises(UserError, match="has more than 1,000 parts"):
        list(tensors(twice))
