"""Curves that are read from a run's files, and files that are damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.support import metric_files
from motif_jax.support.errors import UserError


def test_the_columns_of_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert metric_files.read_csv(path) == {}
    path.write_text("epoch,loss\n")
    assert metric_files.read_csv(path) == {}
    path.write_text("epoch,loss\n0,\n1,0.25\n")
    found = metric_files.read_csv(path)
    np.testing.assert_array_equal(found["epoch"], [0, 1])
    np.testing.assert_array_equal(found["loss"], [np.nan, 0.25])


@pytest.mark.parametrize(
    "content",
    [b"", b"epoch,loss\n1\n", b"epoch,loss\n1,2,3\n", b"a\n\xff\n", b"a\nx\n", b'a\n"1\n'],
    ids=repr,
)
def test_a_damaged_csv_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{path} is damaged .*writes it again"):
        metric_files.read_csv(path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.jsonl"])
def test_a_damaged_line_of_a_run_is_named(tmp_path: Path, name: str) -> None:
    read = metric_files.read_metrics if name == "metrics.jsonl" else metric_files.read_episodes
    (tmp_path / name).write_bytes(b'{"step": 1, "a": 2}\n{"step": \xff}\n{"step": 3, "a": 4}\n')
    with pytest.raises(UserError, match=rf"{name} is damaged in line 2"):
        read(tmp_path)
