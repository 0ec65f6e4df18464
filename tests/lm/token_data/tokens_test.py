"""Tokens on disk: what is written is read, whatever kills the writer; orders are functions of seed and step."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm.token_data import layout
from motif_jax.lm.token_data.dataset import TokensDataset
from motif_jax.lm.token_data.order import gather
from motif_jax.lm.token_data.writer import TokensWriter
from tests.processes import killed
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

ITEMS = [[5, 6, 7], [], [1], [999, 2, 3, 4]]
COLUMNS = {"token_columns": {"reward": np.float32}, "item_columns": {"prompt": np.int32}}


def write(folder: Path, items=ITEMS):
    with TokensWriter(folder, 1000, "a tokenizer") as writer:
        for item in items[writer.items :]:
            writer.add(item)
        writer.commit()


def test_items_and_columns_are_read_as_they_were_written(tmp_path):
    with TokensWriter(tmp_path / "d", 70_000, "a tokenizer", **COLUMNS) as writer:
        for place, item in enumerate(ITEMS):
            writer.add(item, {"reward": np.arange(len(item)) / 2}, {"prompt": place})
        writer.commit()
    found = TokensDataset(tmp_path / "d")
    assert [found.item(i).tolist() for i in range(found.num_items)] == ITEMS
    assert (found.num_items, found.num_tokens, found.lengths.tolist()) == (4, 8, [3, 0, 1, 4])
    assert found.tokens.dtype == np.int32
    assert found.token_columns["reward"].tolist() == [0, 0.5, 1, 0, 0, 0.5, 1, 1.5]
    assert found.item_columns["prompt"].tolist() == [0, 1, 2, 3]
    assert found.manifest["tokenizer"] == "a tokenizer"
    found.check_digests()
    tokens, valid = gather(found, np.array([3, -1, 0]), 5, pad=9)
    assert tokens.tolist() == [[999, 2, 3, 4, 9], [9] * 5, [5, 6, 7, 9, 9]]
    assert valid.sum(axis=1).tolist() == [4, 0, 3]


def test_the_same_items_have_the_same_content_and_small_vocabularies_two_bytes(tmp_path):
    write(tmp_path / "one")
    write(tmp_path / "other")
    write(tmp_path / "third", ITEMS[:3])
    one, other, third = (TokensDataset(tmp_path / name) for name in ("one", "other", "third"))
    assert one.manifest["content"] == other.manifest["content"] != third.manifest["content"]
    assert one.tokens.dtype == np.uint16
    assert [layout.token_dtype(size) for size in (1 << 16, (1 << 16) + 1)] == [np.uint16, np.int32]


KILLED = """
import sys, os, signal
from motif_jax.lm.token_data import writer
(folder, when), replace = sys.argv[1:], os.replace
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with writer.TokensWriter(folder, 1000, "a tokenizer") as w:
    w.add([5, 6, 7]); w.add([]); w.save()
    w.add([1])
    if when == "unsaved":
        w._arrays["tokens"].flush(); die()
    w.add([999, 2, 3, 4])
    os.replace = lambda a, b: die() if str(b) == folder else replace(a, b)
    w.commit()
"""


@pytest.mark.parametrize("when", ["unsaved", "before the rename"])
def test_a_killed_writer_goes_on_behind_its_last_safe_item(tmp_path, when):
    killed(KILLED, str(tmp_path / "d"), when)
    with pytest.raises(UserError, match="not a dataset of tokens"):
        TokensDataset(tmp_path / "d")
    with TokensWriter(tmp_path / "d", 1000, "a tokenizer") as writer:
        assert writer.items == (2 if when == "unsaved" else 4)
    write(tmp_path / "d")
    write(tmp_path / "never")
    found = TokensDataset(tmp_path / "d")
    assert found.manifest == TokensDataset(tmp_path / "never").manifest
    found.check_digests()
    with pytest.raises(UserError, match="already holds"):
        write(tmp_path / "d")


def test_a_writer_of_another_source_begins_anew(tmp_path):
    for source, items in (("one", 0), ("one", 1), ("other", 0)):
        with TokensWriter(tmp_path / "d", 1000, "a tokenizer", source={"text": source}) as writer:
            assert writer.items == items
            writer.add([1])
            writer.save()


@pytest.mark.parametrize("name", ["tokens", "offsets", "token_columns/reward", "item_columns/prompt"])
def test_what_a_killed_writer_left_is_not_taken_up_where_it_is_damaged(tmp_path, name):
    """A file that is shorter than its safe rows would be filled up with zeros, and these be sealed with digests."""
    given = tmp_path / "d", 1000, "a tokenizer", *COLUMNS.values()
    with TokensWriter(*given) as writer:
        for item in ITEMS:
            writer.add(item, {"reward": [1.0] * len(item)}, {"prompt": 0})
        writer.save()
    path = tmp_path / "d.part" / f"{name}.npy"
    whole = path.read_bytes()
    np.save(path, np.zeros(99, np.float64))
    for damaged in (whole[:-1], path.read_bytes()):
        path.write_bytes(damaged)
        others = {each: each.read_bytes() for each in (tmp_path / "d.part").rglob("*.npy")}
        with pytest.raises(UserError, match=rf"{name}\.npy .*: remove .*d\.part, it is made again$"):
            TokensWriter(*given)
        assert {each: each.read_bytes() for each in (tmp_path / "d.part").rglob("*.npy")} == others
    path.write_bytes(whole)
    with TokensWriter(*given) as writer:
        assert writer.items == 4


def test_damaged_and_missing_files_are_named(tmp_path, record):
    write(tmp_path / "d")
    path, about = tmp_path / "d" / "tokens.npy", tmp_path / "d" / "tokens.json"
    whole, named = path.read_bytes(), json.loads(about.read_text())
    path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    found = [outcome_text(lambda: TokensDataset(tmp_path / "d").check_digests(), folder=tmp_path)]
    changes = {"items": 5}, {"dtypes": {**named["dtypes"], "tokens": "<i4"}}, {"items": -1}, {"tokens": True}
    for change in (*changes, {"vocab_size": 1 << 62}, {"digests": []}, {"dtypes": {}}, {}):
        about.write_text(json.dumps(named | change))
        path.write_bytes(whole if change else whole[:-2])
        found.append(outcome_text(TokensDataset, tmp_path / "d", folder=tmp_path))
    path.unlink()
    found.append(outcome_text(TokensDataset, tmp_path / "d", folder=tmp_path))
    assert_matches_packed_recording("tokens_refused", {"found": "\n".join(found)}, record)


def test_what_is_no_item_is_refused(tmp_path):
    with TokensWriter(tmp_path / "d", 10, "a tokenizer", **COLUMNS) as writer:
        for tokens in ([10], [-1], [[1]]):
            with pytest.raises(ValueError, match="0 to 9"):
                writer.add(tokens, {"reward": [0]}, {"prompt": 0})
        for columns in (({}, {"prompt": 0}), ({"reward": [0]}, {}), ({"reward": [0, 0]}, {"prompt": 0})):
            with pytest.raises(ValueError, match="item_columns/prompt, token_columns/reward"):
                writer.add([9], *columns)
        writer.add([0, 9], {"reward": [0, 0]}, {"prompt": 0})
        writer.save()
    progress = tmp_path / "d.part" / "progress.json"
    progress.write_text(progress.read_text().replace('"items": 1', '"items": -1'))
    with pytest.raises(UserError, match=r"damaged \(items or tokens are no counts\): remove .*d\.part"):
        TokensWriter(tmp_path / "d", 10, "a tokenizer", **COLUMNS)
