"""Reading PyTorch's checkpoints: what is in them, and that nothing in them runs."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from motif_jax.published.pickles import Stub, read_checkpoint, tensors
from tests import torch_files


@pytest.mark.torch
def test_tensors_and_plain_data_are_read(tmp_path):
    arrays = {
        "weight": np.arange(12, dtype="f").reshape(3, 4), "double": np.array([0.1, -2.5]), "ids": np.arange(5),
        "flag": np.array([True, False]), "half": np.float16([1.5, -2]), "scalar": np.array(2.5, "f"),
        "none": np.zeros((0, 4), "f"),
    }  # fmt: skip
    content = {
        "model": OrderedDict(arrays),
        "list": [1, -70000, 2**40, 1.5, None, True, "text", (1, 2, 3, 4)],
        "nested": {"a": {"b": np.ones(2, "f")}, "mean": np.float64(0.25), "empty": {}},
    }

    loaded = read_checkpoint(torch_files.write(tmp_path / "a.pth", content))

    assert list(loaded["model"]) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded["model"][name], array)
        assert loaded["model"][name].dtype == array.dtype
    assert loaded["list"] == content["list"]
    assert loaded["nested"]["mean"] == 0.25
    names = [f"model.{name}" for name in arrays]
    assert [name for name, _ in tensors(loaded)] == [*names, "nested.a.b"]


@pytest.mark.torch
def test_views_bfloat16_and_parameters_are_read(tmp_path):
    import torch

    storage = torch.arange(12.0)
    content = {
        "transposed": storage.view(3, 4).T,
        "part": storage.view(3, 4)[1:, 1:3],
        "wide": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    torch.save(content, tmp_path / "a.pth")

    loaded = read_checkpoint(tmp_path / "a.pth")

    np.testing.assert_array_equal(loaded["transposed"], np.arange(12).reshape(3, 4).T)
    np.testing.assert_array_equal(loaded["part"], [[5, 6], [9, 10]])
    np.testing.assert_array_equal(loaded["wide"], [1.5, -2.0])
    np.testing.assert_array_equal(loaded["parameter"], [1, 1])


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1", "?"])
def test_arrays_and_numbers_of_numpy_are_read(tmp_path, dtype):
    import torch

    array = np.array([0, 1, 1], dtype)
    torch.save({"array": array, "number": array[1], "none": array[:0]}, tmp_path / "a.pth")

    loaded = read_checkpoint(tmp_path / "a.pth")

    np.testing.assert_array_equal(loaded["array"], array)
    assert loaded["number"] == 1
    assert loaded["none"].size == 0


@pytest.mark.torch
def test_an_unknown_object_keeps_its_attributes_as_data(tmp_path):
    import torch

    itself = {"path": Path("a")}
    itself["self"] = itself
    torch.save(itself, tmp_path / "a.pth")

    loaded = read_checkpoint(tmp_path / "a.pth")

    assert isinstance(loaded["path"], Stub)
    assert loaded["path"].arguments == ("a",)
    assert loaded["self"] is loaded


class Harmful:
    """Opens a file for writing when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.torch
def test_nothing_in_the_file_runs(tmp_path):
    path = torch_files.write(tmp_path / "a.pth", {"x": Harmful(tmp_path / "made"), "y": 1})

    loaded = read_checkpoint(path)

    assert not (tmp_path / "made").exists()
    assert loaded["x"].arguments == (str(tmp_path / "made"), "w")
    assert loaded["y"] == 1


@pytest.mark.torch
def test_a_checkpoint_that_is_cut_short_is_refused(tmp_path):
    path = torch_files.write(tmp_path / "a.pth", {"x": np.ones(100)})
    path.write_bytes(path.read_bytes()[:-300])

    with pytest.raises(RuntimeError, match="failed finding central directory"):
        read_checkpoint(path)


@pytest.mark.torch
def test_a_plain_pickle_is_no_checkpoint(tmp_path):
    path = tmp_path / "a.pth"
    path.write_bytes(pickle.dumps({"a": 1}))

    with pytest.raises(ValueError, match=r"a checkpoint returned by torch\.save"):
        read_checkpoint(path)
