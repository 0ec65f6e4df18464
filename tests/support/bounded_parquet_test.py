"""Parquet of a few kB that describes more than any memory: read in pieces, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax.language import corpus
from motif_jax.support import bounded_parquet, capacity
from motif_jax.support.errors import UserError

LONG = "a" * 2_000_000


def test_texts_of_200_gb_are_refused_or_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    repeated = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array([LONG]))
    pq.write_table(pa.table({"text": repeated}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 20_000
    with pytest.raises(UserError, match=r"what it holds takes [\d,]+ MiB of memory, [\d,]+ MiB are left$"):
        bounded_parquet.read(path, ["text"])
    monkeypatch.setattr(bounded_parquet, "_PIECE_BYTES", 5_000_000)
    first = next(bounded_parquet.batches(path, ["text"]))
    assert 0 < first.nbytes < 5_000_000
    assert next(corpus.read([path], "file")).text == LONG
    monkeypatch.setattr(bounded_parquet, "ROW_BYTES", 1 << 20)
    monkeypatch.setattr(bounded_parquet, "_PIECE_BYTES", 1 << 20)
    with pytest.raises(UserError, match="has a row of 1 MiB: at most 1 MiB are read"):
        next(corpus.read([path], "file"))


def test_a_group_of_more_values_than_the_memory_is_refused(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.nulls(1_000_000, pa.string())}), path)
    monkeypatch.setattr(capacity, "available_memory", lambda: 1 << 20)
    with pytest.raises(UserError, match="group 0 of its rows takes 8 MiB of memory, 1 MiB are left"):
        next(corpus.read([path], "file"))


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    texts, sizes = [["a", "b"], [], ["a"]], [[1.0, None], None, [2.0]]
    table = pa.table({"texts": texts, "meta": ["x", "x", None], "sizes": sizes})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    found = bounded_parquet.read(tmp_path / "a.parquet", ["sizes", "texts", "meta"])
    assert found.column_names == ["sizes", "texts", "meta"]
    assert found.to_pydict() == table.select(found.column_names).to_pydict()
    pq.write_table(table[:0], tmp_path / "b.parquet")
    assert bounded_parquet.read(tmp_path / "b.parquet", ["meta"]).to_pydict() == {"meta": []}
