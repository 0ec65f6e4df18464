"""Parquet of a few kB that describes more than any memory: read in pieces, or refused in one
line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax.core import bounded_parquet, capacity
from motif_jax.core.errors import UserError
from motif_jax.lm import corpus

LONG = "a" * 2_000_000


def test_texts_of_200_gb_are_refused_or_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    repeated = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(100_000, np.int32)), pa.array([LONG])
    )
    pq.write_table(pa.table({"text": repeated}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 20_000
    with pytest.raises(
        UserError, match=r"what it holds takes [\d,]+ MiB of memory, [\d,]+ MiB are left$"
    ):
        bounded_parquet.read(path, ["text"])
    monkeypatch.setattr(bounded_parquet, "PIECE_BYTES", 5_000_000)
    first = next(bounded_parquet.batches(path, ["text"]))
    assert 0 < first.nbytes < 5_000_000
    assert next(corpus.read([path], "file")).text == LONG
    monkeypatch.setattr(bounded_parquet, "ROW_BYTES", 1 << 20)
    monkeypatch.setattr(bounded_parquet, "PIECE_BYTES", 1 << 20)
    with pytest.raises(UserError, match="has a row of 1 MiB: at most 1 MiB are read"):
        next(corpus.read([path], "file"))


def test_a_group_of_more_values_than_the_memory_is_refused(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a.parquet"
    monkeypatch.setattr(capacity, "available_memory", lambda: 1 << 19)
    kinds = {"string": 8, "int64": 8, "float32": 4, "int32": 4, "int16": 2, "uint8": 1, "bool_": 1}
    for kind, size in kinds.items():
        pq.write_table(pa.table({"text": pa.nulls(1 << 20, getattr(pa, kind)())}), path)
        line = rf"^{path}: group 0 of its rows takes {size} MiB of memory, 0 MiB are left$"
        with pytest.raises(UserError, match=line):
            next(bounded_parquet.batches(path, ["text"]))


def test_memory_of_a_table_is_estimated_by_column_types(tmp_path: Path, monkeypatch) -> None:
    """Twice, of what was read so far with every text."""
    rows = {
        "said": ["one", "three", "one", None],
        "pairs": [["ab", "c"], [], None, ["ab"]],
        "small": pa.array([1, 2, 3, 4], pa.int8()),
        "of": [{"x": 1.5, "y": True}] * 4,
        "fixed": pa.array([[1, 2]] * 4, pa.list_(pa.int32(), 2)),
    }
    pq.write_table(pa.table(rows), tmp_path / "a.parquet", row_group_size=3)
    taken: list[tuple[str, int]] = []
    monkeypatch.setattr(capacity, "available_memory", lambda: 5)
    monkeypatch.setattr(
        capacity, "require", lambda purpose, size, free: taken.append((purpose, size))
    )
    sizes = {
        "said": (70, 86),
        "pairs": (86, 122),
        "small": (6, 8),
        "of": (52, 72),
        "fixed": (98, 132),
        "of small": (58, 80),
    }
    for names, held in ((kinds.split(), held) for kinds, held in sizes.items()):
        taken.clear()
        table = bounded_parquet.read(tmp_path / "a.parquet", names)
        assert table.equals(pa.table(rows).select(names)), "in the order that was asked for"
        assert tuple(size for purpose, size in taken if purpose.endswith("what it holds")) == held
    for piece_bytes, lengths in ((35, [3, 1]), (34, [1, 2, 1])):
        monkeypatch.setattr(bounded_parquet, "PIECE_BYTES", piece_bytes)
        parts = bounded_parquet.batches(tmp_path / "a.parquet", ["said"])
        assert [part.num_rows for part in parts] == lengths
    monkeypatch.undo()
    pq.write_table(pa.table(rows)[:0], tmp_path / "b.parquet")
    assert bounded_parquet.read(tmp_path / "b.parquet", ["said"]).to_pydict() == {"said": []}
    parts = list(bounded_parquet.batches(tmp_path / "a.parquet", ["small", "said"], rows=2))
    assert [part.to_pydict()["small"] for part in parts] == [[1, 2], [3], [4]]


@pytest.mark.parametrize(
    "kind", [pa.list_, pa.large_list, lambda of: pa.list_(of, 1), lambda of: pa.struct({"x": of})]
)
def test_texts_have_no_dictionaries_at_any_depth(tmp_path: Path, kind: Any) -> None:
    rows = [{"x": "one"}] if pa.types.is_struct(kind(pa.string())) else [["one"]]
    column = pa.array(3 * rows, kind(pa.string()))
    pq.write_table(pa.table({"texts": column}), tmp_path / "a.parquet")

    assert bounded_parquet.read(tmp_path / "a.parquet", ["texts"])["texts"].type == column.type
