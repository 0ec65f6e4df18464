import numpy as np
import pytest

from motif_jax.motif.pairs import assemble, chunks
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.writer import PairsWriter


@pytest.mark.parametrize(
    ("steps", "length", "share", "count"),
    [(100, 1, 1.0, 100), (100, 3, 1.0, 33), (100, 1, 0.1, 10), (5, 5, 1.0, 1), (4, 5, 1.0, 0), (9, 1, 0.01, 1)],
)  # fmt: skip
def test_start_points(steps, length, share, count):
    drawn = [
        chunks.draw_starts(steps, length, share, np.random.default_rng(seed)) for seed in range(60)
    ]
    assert (
        {len(set(starts.tolist())) for starts in drawn}
        == {len(starts) for starts in drawn}
        == {count}
    )
    if count:  # every start is drawn
        assert {0, steps - length} <= set(np.concatenate(drawn)) <= set(range(steps - length + 1))


def test_chunk_files(tmp_path):
    chunks.save(tmp_path, 3, 2, {"data/x": np.arange(2)})
    chunks.save(tmp_path, 11, 0, {})
    (tmp_path / ".00000004-000002.npz.half.tmp").write_bytes(b"killed")
    (tmp_path / "00000005-00007.npz").touch()
    assert chunks.scan(tmp_path) == {3: 2, 11: 0}
    assert chunks.load(tmp_path, 3, 2)["data/x"].tolist() == [0, 1]
    cut = chunks.gather({"a": np.arange(12).reshape(6, 2)}, np.array([0, 3]), 3)["a"]
    assert cut.tolist() == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]


def test_enough_episodes():
    counts = {0: 5, 1: 0, 2: 4, 4: 9}
    assert [assemble.enough_episodes(counts.get, rows) for rows in (0, 5, 6, 9, 10)] == [
        0,
        1,
        3,
        3,
        None,
    ]


def test_pairs_use_each_row_once_without_equal_captions_if_asked():
    pairs, rows_left = assemble.draw_pairs(101, 40, np.random.default_rng(0))
    assert (pairs.shape, rows_left) == ((40, 2), 50)
    assert len(set(pairs.reshape(-1).tolist())) == 80
    keys = np.arange(1000) % 3
    pairs, rows_left = assemble.draw_pairs(1000, 500, np.random.default_rng(0), keys)
    assert len(pairs) == rows_left < 500
    assert (keys[pairs[:, 0]] != keys[pairs[:, 1]]).all()
    assert [assemble.more_rows(100, 50, rows_left) for rows_left in (40, 33, 50, 60, 0)] == [
        132,
        160,
        105,
        102,
        400,
    ]


def test_rows_end_up_in_their_pairs(tmp_path):
    pairs, _ = assemble.draw_pairs(12, 5, np.random.default_rng(1))
    counts = [3, 0, 5, 4]
    stored = []
    for rows in np.split(np.arange(12), np.cumsum(counts)[:-1]):
        messages = np.tile(rows[:, None, None], (1, 1, 256)).astype(np.uint8)
        stored.append({"data/message": messages, "info/row": rows, "not_kept": np.zeros(1)})
    with PairsWriter(tmp_path, 5) as writer:
        assert list(assemble.fill(writer, pairs, counts, stored.__getitem__)) == [0, 1, 2, 3]
        writer.commit({})
    dataset = PairsDataset.open(tmp_path)
    np.testing.assert_array_equal(dataset.info["row"], pairs)
    np.testing.assert_array_equal(dataset.data["message"][:, :, 0, 0], pairs)
    assert sorted(dataset.info) == ["row"]


def test_distinct_messages_are_drawn_alike_however_often_they_came():
    texts = np.zeros((1000, 4), np.uint8)
    texts[[7, 500, 501]] = [[1], [2], [2]]
    weights = chunks.evenly(texts, 1)
    assert weights[[0, 7, 500, 501, 999]].tolist() == [1 / 997, 1, 0.5, 0.5, 1 / 997]
    drawn = [
        chunks.draw_starts(1000, 1, 0.01, np.random.default_rng(seed), weights)
        for seed in range(200)
    ]
    assert all(len(np.unique(starts)) == 10 for starts in drawn)
    assert np.mean([7 in starts for starts in drawn]) > 0.9
    # Sub-sequences are known by their first message; a game shorter than one has none.
    assert len(chunks.evenly(texts, 3)) == 998
    assert (
        chunks.draw_starts(2, 3, 1.0, np.random.default_rng(0), chunks.evenly(texts[:2], 3)).size
        == 0
    )


def test_usable_pairs_are_those_with_two_different_captions():
    keys = np.array([7, 7, 2**63, 7, 5, 2**63], np.uint64)
    usable = assemble.UsableShare()
    for part in (keys[:1], keys[1:4], keys[4:]):
        usable.add(part)
    pairs = [keys[i] != keys[j] for i in range(6) for j in range(6) if i != j]
    assert usable.value == pytest.approx(np.mean(pairs))


def test_progress_is_even_where_half_the_pairs_are_dropped():
    # 100 pairs need 200 sub-sequences if all are usable; if half are, 1.05 times 400.
    assert assemble.pairs_done(100, 200, 100, 1.0) == 50
    assert assemble.pairs_done(210, 200, 100, 0.5) == 50
    # What is asked for after the first 200 is what was expected.
    assert assemble.more_rows(200, 100, 50) == 420
    assert assemble.pairs_done(210, 420, 100, 0.5) == 50
    assert assemble.pairs_done(500, 420, 100, 0.5) == 100


def test_one_array_of_a_chunk_is_read_alone(tmp_path):
    chunks.save(tmp_path, 3, 2, {"data/x": np.arange(2), "keys": np.array([5, 6])})
    assert chunks.load_array_of(tmp_path, 3, 2, "keys").tolist() == [5, 6]
