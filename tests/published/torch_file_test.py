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
        "means": np.array([0.25, 0.5]),
        "none": np.zeros((0, 4), "f"),
    }
    loaded = read_checkpoint(torch_files.write(tmp_path / "a.pth", content, protocol=protocol))
    assert list(loaded["model"]) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded["model"][name], array)
        assert loaded["model"][name].dtype == array.dtype
    assert loaded["list"] == content["list"]
    assert loaded["nested"]["mean"] == 0.25
    np.testing.assert_array_equal(loaded["means"], [0.25, 0.5])
    assert loaded["none"].shape == (0, 4)
    names = [f"model.{name}" for name in arrays]
    assert [name for name, _ in tensors(loaded)] == [*names, "nested.a.b"]


def test_views_of_a_shared_storage(tmp_path):
    storage = Storage(np.arange(12, dtype="f"))
    content = {
        "transposed": Tensor(storage, 0, (4, 3), (1, 4)),
        "part": Tensor(storage, 5, (2, 2), (4, 1)),
        "wide": Tensor(Storage(np.array([0x3FC0, 0xC000], np.uint16), "BFloat16"), 0, (2,), (1,)),
        "none": Tensor(storage, 12, (0, 3), (3, 1)),
    }
    loaded = read_checkpoint(torch_files.write(tmp_path / "a.pth", content))
    np.testing.assert_array_equal(loaded["transposed"], np.arange(12).reshape(3, 4).T)
    np.testing.assert_array_equal(loaded["part"], [[5, 6], [9, 10]])
    np.testing.assert_array_equal(loaded["wide"], [1.5, -2.0])
    assert loaded["none"].shape == (0, 3)


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_in_the_file_runs(tmp_path):
    path = torch_files.write(
        tmp_path / "a.pth", {"x": Harmful(tmp_path / "made"), "y": 1, "s": Path("a")}
    )
    loaded = read_checkpoint(path)
    assert not (tmp_path / "made").exists()
    assert loaded == {
        "x": Unread("posix.mkdir", (str(tmp_path / "made"),)), "y": 1, "s": Unread(f"{type(Path()).__module__}.PosixPath", ("a",)),
    }  # fmt: skip


STORAGE = Storage(np.arange(12, dtype="f"))
# A tensor in the wrong place of its storage, or of the right one.
BAD_VIEWS = [
    (0, (13,), (1,), r"shape \[13\] repeats its storage of 12"),
    (10, (2, 2), (1, 1), r"shape \[2, 2\] goes beyond its storage of 12"),
    (0, (2, 2), (-1, 1), r"shape \[2, 2\] goes beyond its storage of 12"),
    (-1, (2,), (1,), r"shape \[2\] goes beyond its storage of 12"),
    (8, (2,), (4,), r"shape \[2\] goes beyond its storage of 12"),
    (0, (-2,), (1,), r"shape \[-2\] goes beyond its storage of 12"),
    (0, (2,), (1, 1), "argument 2 is longer"),
]
# Offset, shape and strides in a storage of 0 to 11, and what they show.
GOOD_VIEWS = [
    (9, (2, 2), (1, 1), [[9, 10], [10, 11]]),
    (0, (12,), (0,), [0] * 12),
    (11, (), (), 11),
    (8, (2,), (3,), [8, 11]),
]


NOT_WHOLE = "is not a whole PyTorch checkpoint in zip format"


@pytest.mark.parametrize(("offset", "shape", "strides", "message"), BAD_VIEWS)
def test_a_tensor_beyond_its_storage_is_refused(tmp_path, offset, shape, strides, message):
    path = torch_files.write(tmp_path / "a.pth", {"t": Tensor(STORAGE, offset, shape, strides)})

    with pytest.raises(UserError, match=f"^{path} {NOT_WHOLE}.*{message}"):
        read_checkpoint(path)


@pytest.mark.parametrize(("offset", "shape", "strides", "values"), GOOD_VIEWS)
def test_a_view_to_the_end_of_its_storage_is_read(tmp_path, offset, shape, strides, values):
    path = torch_files.write(tmp_path / "a.pth", {"t": Tensor(STORAGE, offset, shape, strides)})

    np.testing.assert_array_equal(read_checkpoint(path)["t"], np.float32(values))


@pytest.fixture
def parts(tmp_path):
    """The files in the zip of a whole checkpoint of one tensor."""
    path = torch_files.write(tmp_path / "a.pth", {"t": tensor(np.arange(6, dtype="f"))})
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_zip(path, parts, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def test_a_pickle_cut_anywhere_is_refused(tmp_path, parts):
    pickled = parts["archive/data.pkl"]
    for length in range(0, len(pickled), 7):
        path = write_zip(tmp_path / "a.pth", parts | {"archive/data.pkl": pickled[:length]})
        with pytest.raises(UserError, match=NOT_WHOLE):
            read_checkpoint(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"FloatStorage", b"ComplexStorage", "storage ComplexStorage is not supported"),
        (b"storage", b"storing", "storage FloatStorage is not supported"),
    ],
)
def test_a_storage_of_another_kind_is_refused(tmp_path, parts, old, new, message):
    data = parts["archive/data.pkl"].replace(old, new)
    path = write_zip(tmp_path / "a.pth", parts | {"archive/data.pkl": data})

    with pytest.raises(UserError, match=message):
        read_checkpoint(path)


def test_a_storage_of_another_size_is_refused(tmp_path, parts):
    path = write_zip(tmp_path / "a.pth", parts | {"archive/data/0": bytes(8)})

    with pytest.raises(UserError, match="storage 0 has 2 entries, not 6"):
        read_checkpoint(path)


def test_a_plain_pickle_is_no_checkpoint(tmp_path):
    path = tmp_path / "a.pth"
    path.write_bytes(pickle.dumps({"a": 1}))

    with pytest.raises(UserError, match=f"{NOT_WHOLE}.*PyTorch 1.6 and later write it"):
        read_checkpoint(path)


def test_a_zip_of_other_files_is_no_checkpoint(tmp_path):
    with pytest.raises(UserError, match=NOT_WHOLE):
        read_checkpoint(write_zip(tmp_path / "a.pth", {"other": bytes(1000)}))


def test_a_compressed_checkpoint_is_refused_with_the_remedy(tmp_path):
    path = write_zip(tmp_path / "a.pth", {"archive/data.pkl": bytes(1000)}, zipfile.ZIP_DEFLATED)

    with pytest.raises(UserError, match=r"claims more bytes than it has: .*unpack it, zip -0"):
        read_checkpoint(path)


def test_a_checkpoint_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=f"^{tmp_path}/absent cannot be read: .*No such file"):
        read_checkpoint(tmp_path / "absent")


def test_a_checkpoint_that_contains_itself_is_refused(monkeypatch):
    itself = {"a": [1]}
    itself["a"].append(itself)
    with pytest.raises(UserError, match=r"nested deeper than 50 levels, .* or contains itself"):
        list(tensors(itself))
    twice = [np.zeros(1, "f").view(torch_file.Tensor)]
    for _ in range(12):  # with each further one twice as many
        twice = [twice, twice]
    assert len(list(tensors(twice))) == 2**12
    monkeypatch.setattr(torch_file, "MAX_PARTS", 1000)
    with pytest.raises(UserError, match="has more than 1,000 parts"):
        list(tensors(twice))
