"""Texts and dialogues are read from files, an item at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax.lm import text_data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file of each kind."""
    (tmp_path / "a.txt").write_text("one\ntwo\n\n\n  \nthree\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "four", "prompt": "p"}) + "\n")
    pq.write_table(pa.table({"text": ["five"], "other": [1]}), tmp_path / "c.parquet")
    return tmp_path


def test_files_of_a_folder_are_read_in_order(folder: Path) -> None:
    paths = text_data.find_files(str(folder))

    items = list(text_data.read_items(paths))

    size = (folder / "c.parquet").stat().st_size
    assert items == [
        text_data.Item("one\ntwo", size=9),
        text_data.Item("three", size=7),
        text_data.Item("four", "p", size=32),
        text_data.Item("five", size=size),
    ]


def test_every_dialogue_action_is_an_item_after_its_prompt(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    # The actions are b and d; the second dialogue has none.
    table = {"texts": [["a", "b", "c", "d"], ["e"]], "rewards": [[None, 1.0, None, 2.0], [None]]}
    pq.write_table(pa.table(table), path)

    items = list(text_data.read_items([path]))

    # Two rows, and two actions in the first one.
    size = path.stat().st_size // 2 // 2
    assert items == [
        text_data.Item("bc", "a", size, ["b", "c"]),
        text_data.Item("d", "abc", size, ["d"]),
    ]


def test_files_are_read_in_the_order_of_the_config(folder: Path) -> None:
    paths = text_data.find_files(f"{folder}/b.jsonl, ,{folder}/a.txt")

    assert [path.name for path in paths] == ["b.jsonl", "a.txt"]
