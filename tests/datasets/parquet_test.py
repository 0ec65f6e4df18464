"""Datasets as parquet and back."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from motif_jax.datasets import parquet
from motif_jax.datasets.pairs import PairsDataset
from motif_jax.support.errors import UserError
from tests.reward_fixtures import make_dataset, write_labels


@pytest.mark.parametrize("length", [1, 3])
def test_there_and_back_without_loss(tmp_path, monkeypatch, length):
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 16)
    make_dataset(tmp_path / "d", pairs=50, length=length, glyphs=True)
    np.save(tmp_path / "d" / "info" / "character.npy", np.array([["Mon-hum", "Val-dwa"]] * 50))
    chances = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    chances[3] = np.nan
    write_labels(tmp_path / "d", "soft", np.arange(50, dtype=np.int8) % 4, chances)
    dataset = PairsDataset.open(tmp_path / "d")
    assert list(parquet.write(dataset, tmp_path / "p.parquet")) == [16, 32, 48, 50]
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.num_rows == 50
    message = table["data/message/second"][7].as_py()
    message = message if length == 1 else message[0]
    assert message == dataset.data["message"][7, 1, 0].tobytes().rstrip(b"\0")
    assert table["preference/test"].to_pylist() == dataset.preference("test").tolist()
    for _ in parquet.read(tmp_path / "p.parquet", tmp_path / "back"):
        pass
    back = PairsDataset.open(tmp_path / "back")
    assert back.content_hash() == dataset.content_hash()
    assert parquet.array_names(back) == parquet.array_names(dataset)
    for group in ("data", "info"):
        for name, array in getattr(dataset, group).items():
            np.testing.assert_array_equal(getattr(back, group)[name], array)
            assert getattr(back, group)[name].dtype == array.dtype
    for name in ("test", "soft"):
        np.testing.assert_array_equal(back.preference(name), dataset.preference(name))
    np.testing.assert_array_equal(
        np.load(tmp_path / "back/annotations/soft/probabilities.npy"), chances.astype(np.float32)
    )
    assert not list((tmp_path / "back").glob(".*"))
    with pytest.raises(UserError, match="already holds a dataset"):
        next(parquet.read(tmp_path / "p.parquet", tmp_path / "back"))


def test_what_is_no_such_file_is_refused(tmp_path):
    make_dataset(tmp_path / "d", pairs=5)
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a parquet file"):
        next(parquet.read(tmp_path / "x", tmp_path / "back"))
    import pyarrow as pa

    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(UserError, match="not a pairs dataset"):
        next(parquet.read(tmp_path / "other.parquet", tmp_path / "back"))


def test_a_writer_that_was_stopped_leaves_no_file(tmp_path):
    make_dataset(tmp_path / "d", pairs=5)
    dataset = PairsDataset.open(tmp_path / "d")
    writing = parquet.write(dataset, tmp_path / "p.parquet", ["data/message"])
    next(writing)
    writing.close()
    assert not (tmp_path / "p.parquet").exists()
