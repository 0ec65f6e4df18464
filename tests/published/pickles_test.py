"""Pickles that are damaged, or hold something else, in one line."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from motif_jax.published import pickles
from motif_jax.support.errors import UserError


@pytest.mark.parametrize("kept", [0.5, 1.0])
def test_a_pickle_that_is_cut_or_something_else_is_one_line(tmp_path: Path, kept: float) -> None:
    path, whole = tmp_path / "log.pkl", pickle.dumps({"rewards": [1.0, 2.0]})
    path.write_bytes(whole[: int(len(whole) * kept)])
    refused = pytest.raises(UserError, match=r"log\.pkl is not a log \(.*\); see the page")
    with refused, pickles.reading(path, "a log", "; see the page"):
        assert pickles.read_file(path, 1 << 20, pickles.PickleReader())["returns"]


def test_a_pickle_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "none.pkl"
    with pytest.raises(UserError, match=r"none\.pkl cannot be read"), pickles.reading(path, "a log"):
        pickles.read_file(path, 1 << 20, pickles.PickleReader())


def test_a_pickle_larger_than_is_read_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.pkl"
    with open(path, "wb") as file:
        file.truncate((2 << 30) + 1)
    with pytest.raises(UserError, match="is larger than 2 GiB"):
        pickles.read_file(path, 2 << 30, pickles.PickleReader())
