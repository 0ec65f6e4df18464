"""Tokens on disk: what is written is read, whatever kills the writer; orders are functions of seed
and step.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm import token_data
from motif_jax.lm.token_batches import Buckets, TokenWindows, gather
from motif_jax.lm.token_data import TokensDataset, TokensWriter
from tests.processes import killed

ITEMS = [[5, 6, 7], [], [1], [999, 2, 3, 4]]
COLUMNS = {"token_columns": {"reward": np.float32}, "item_columns": {"prompt": np.int32}}


def write(folder: Path, items=ITEMS):
    with TokensWriter(folder, 1000, "a tokenizer") as writer:
        for item in items[writer.items :]:
            writer.add(item)
        writer.commit()


def test_items_and_columns_are_read_as_they_were_written(tmp_path):
    with TokensWriter(tmp_path / "d", 70_000, "a tokenizer", **COLUMNS) as writer:
        for index, item in enumerate(ITEMS):
            writer.add(item, {"reward": np.arange(len(item)) / 2}, {"prompt": index})
        writer.commit()

    dataset = TokensDataset(tmp_path / "d")

    assert [dataset.item(index).tolist() for index in range(dataset.num_items)] == ITEMS
    assert (dataset.num_items, dataset.num_tokens, dataset.lengths.tolist()) == (4, 8, [3, 0, 1, 4])
    assert dataset.tokens.dtype == np.int32
    assert dataset.token_columns["reward"].tolist() == [0, 0.5, 1, 0, 0, 0.5, 1, 1.5]
    assert dataset.item_columns["prompt"].tolist() == [0, 1, 2, 3]
    assert dataset.manifest["tokenizer"] == "a tokenizer"
    dataset.check_digests()


def test_gathered_items_are_padded_on_the_right(tmp_path):
    write(tmp_path / "d")

    tokens, valid = gather(TokensDataset(tmp_path / "d"), np.array([3, -1, 0]), 5, pad=9)

    assert tokens.tolist() == [[999, 2, 3, 4, 9], [9] * 5, [5, 6, 7, 9, 9]]
    assert valid.sum(axis=1).tolist() == [4, 0, 3]


def test_the_same_items_have_the_same_content_digest(tmp_path):
    write(tmp_path / "one")
    write(tmp_path / "same")
    write(tmp_path / "fewer", ITEMS[:3])

    one, same, fewer = (
        TokensDataset(tmp_path / name).manifest["content"] for name in ("one", "same", "fewer")
    )

    assert one == same != fewer


def test_tokens_of_small_vocabularies_have_two_bytes(tmp_path):
    write(tmp_path / "d")

    assert TokensDataset(tmp_path / "d").tokens.dtype == np.uint16
    assert token_data.token_dtype(1 << 16) == np.uint16
    assert token_data.token_dtype((1 << 16) + 1) == np.int32


KILLED = """
import sys, os, signal
from motif_jax.lm import token_data
(folder, when), replace = sys.argv[1:], os.replace
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with token_data.TokensWriter(folder, 1000, "a tokenizer") as w:
    w.add([5, 6, 7]); w.add([]); w.save()
    w.add([1])
    if when == "unsaved":
        w._arrays["tokens"].flush(); die()
    w.add([999, 2, 3, 4])
    os.replace = lambda a, b: die() if str(b) == folder else replace(a, b)
    w.commit()
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["unsaved", "before the rename"])
def test_a_killed_writer_goes_on_behind_its_last_safe_item(tmp_path, when):
    killed(KILLED, str(tmp_path / "d"), when)
    with pytest.raises(UserError, match="give a dataset of tokens"):
        TokensDataset(tmp_path / "d")
    with TokensWriter(tmp_path / "d", 1000, "a tokenizer") as writer:
        assert writer.items == (2 if when == "unsaved" else 4)
    write(tmp_path / "d")
    write(tmp_path / "undisturbed")
    resumed = TokensDataset(tmp_path / "d")
    assert resumed.manifest == TokensDataset(tmp_path / "undisturbed").manifest
    resumed.check_digests()
    with pytest.raises(UserError, match="already holds"):
        write(tmp_path / "d")


def test_a_writer_of_another_source_begins_anew(tmp_path):
    for source, items in (("one", 0), ("one", 1), ("other", 0)):
        with TokensWriter(tmp_path / "d", 1000, "a tokenizer", source={"text": source}) as writer:
            assert writer.items == items
            writer.add([1])
            writer.save()


@pytest.mark.parametrize(
    "name", ["tokens", "offsets", "token_columns/reward", "item_columns/prompt"]
)
def test_a_killed_writers_short_files_are_refused_and_left_unchanged(tmp_path, name):
    """A file that is shorter than its saved rows would be filled up with zeros, and these be sealed
    with digests.
    """
    arguments = (tmp_path / "d", 1000, "a tokenizer", *COLUMNS.values())
    with TokensWriter(*arguments) as writer:
        for item in ITEMS:
            writer.add(item, {"reward": [1.0] * len(item)}, {"prompt": 0})
        writer.save()
    path = tmp_path / "d.part" / f"{name}.npy"
    intact = path.read_bytes()
    path.write_bytes(intact[:-1])
    before = {file: file.read_bytes() for file in (tmp_path / "d.part").rglob("*.npy")}
    with pytest.raises(UserError, match=rf"{name}\.npy is cut off: remove .*d\.part"):
        TokensWriter(*arguments)
    assert {file: file.read_bytes() for file in (tmp_path / "d.part").rglob("*.npy")} == before
    path.write_bytes(intact)
    with TokensWriter(*arguments) as writer:
        assert writer.items == 4


def test_changed_tokens_of_equal_size_have_another_digest(tmp_path):
    write(tmp_path / "d")
    path = tmp_path / "d" / "tokens.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    with pytest.raises(
        UserError, match=r"tokens\.npy was changed after it was written: write the dataset again$"
    ):
        TokensDataset(tmp_path / "d").check_digests()


def test_windows_show_every_token_once_a_pass():
    order = TokenWindows(103, 10, 4, seed=3)
    starts = np.concatenate([order.starts(step) for step in range(5)])
    assert order.per_pass == 10
    for pass_starts in (np.sort(starts[:10]), np.sort(starts[10:])):
        assert set(np.diff(pass_starts)) == {10}
        assert 0 <= pass_starts[0] <= 3


def test_windows_shift_their_starts_from_pass_to_pass():
    order = TokenWindows(103, 10, 10, seed=3)
    first_starts = {int(order.starts(number).min()) for number in range(20)}
    assert first_starts == {0, 1, 2, 3}


def test_windows_of_a_step_depend_on_seed_and_step_alone():
    order = TokenWindows(103, 10, 4, seed=3)
    again = TokenWindows(103, 10, 4, seed=3)
    expected = order.starts(3)
    np.testing.assert_array_equal(again.starts(3), expected)
    assert order.starts(0).tolist() != TokenWindows(103, 10, 4, seed=4).starts(0).tolist()
    passes = [
        np.concatenate([order.starts(5 * number + step) for step in range(5)])
        for number in range(2)
    ]
    assert passes[0].tolist() != passes[1].tolist()


def test_gathered_windows_begin_at_their_starts():
    order = TokenWindows(103, 10, 4, seed=3)
    windows = order.gather(np.arange(103, dtype=np.uint16), 1)
    assert windows.dtype == np.int32
    np.testing.assert_array_equal(windows, order.starts(1)[:, None] + np.arange(10))


WIDTHS = (8, 16, 32)


def bucket_lengths(count):
    return np.random.default_rng(0).integers(1, 30, count)


def rows_of_pass(order, number):
    first = number * order.steps_per_pass
    return [order.rows(step) for step in range(first, first + order.steps_per_pass)]


@pytest.mark.parametrize(
    ("count", "batch", "group"), [(50, 3, 2), (4, 2, 3), (7, 1, 4), (60, 4, 1), (200, 4, 4)]
)
@pytest.mark.parametrize("number", [0, 1])
def test_buckets_show_every_item_once_a_pass(count, batch, group, number):
    order = Buckets(bucket_lengths(count), WIDTHS, batch, seed=1, group=group)
    items = np.concatenate([row.items for row in rows_of_pass(order, number)])
    shown = np.bincount(items[items >= 0], minlength=count)
    assert shown.min() == 1
    # Where items are fewer than steps, some are shown again, so that no step is empty.
    assert shown.sum() == max(count, order.steps_per_pass)


@pytest.mark.parametrize(
    ("count", "batch", "group"), [(50, 3, 2), (4, 2, 3), (7, 1, 4), (60, 4, 1), (200, 4, 4)]
)
def test_buckets_give_a_group_of_steps_one_sufficient_width(count, batch, group):
    lengths = bucket_lengths(count)
    order = Buckets(lengths, WIDTHS, batch, seed=1, group=group)
    rows = rows_of_pass(order, 0)
    assert len(rows) % group == 0
    for step, row in enumerate(rows):
        items = row.items[row.items >= 0]
        assert row.items.shape == (batch,)
        assert items.size > 0
        assert lengths[items].max() <= row.width == rows[step - step % group].width


def test_buckets_give_most_items_their_narrowest_width():
    lengths = bucket_lengths(60)
    order = Buckets(lengths, WIDTHS, 4, seed=1, group=1)
    rows = rows_of_pass(order, 0)
    wider = sum(
        int((lengths[row.items[row.items >= 0]] <= row.width // 2).sum())
        for row in rows
        if row.width > 8
    )
    # Of each bucket but the widest fewer than a group's items move on.
    assert wider <= 2 * 3
    assert {row.width for row in rows} == set(WIDTHS)


def test_buckets_of_a_step_depend_on_seed_and_step_alone():
    order = Buckets(bucket_lengths(50), WIDTHS, 3, seed=1, group=2)
    again = Buckets(bucket_lengths(50), WIDTHS, 3, seed=1, group=2)
    step = order.steps_per_pass + 3
    expected = order.rows(step).items
    np.testing.assert_array_equal(again.rows(step).items, expected)
    assert order.rows(step - order.steps_per_pass).items.tolist() != expected.tolist()
