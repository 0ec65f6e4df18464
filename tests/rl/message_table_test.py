"""The table of rewards: exact, each text once, bounded, swapped without compiling."""

from __future__ import annotations

import tracemalloc

import numpy as np

from motif_jax.rl.message_table import MessageTable


def texts(*rows: bytes, width: int = 16) -> np.ndarray:
    return np.array([np.frombuffer(row.ljust(width, b"\0"), np.uint8) for row in rows])


class Counting:
    """The sum of a text's bytes times a parameter; remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, params, rows):
        self.asked.extend(bytes(row).rstrip(b"\0") for row in rows)
        return rows.sum(axis=1).astype(np.float32) * params


def test_what_was_used_last_stays_however_often_others_are_forgotten():
    for start in range(0, 60, 10):  # texts of other hashes each time
        a, b, c, d, e, f, g, h, i, j = (b"%d" % (start + number) for number in range(10))
        compute = Counting()
        table = MessageTable(compute, 1.0, capacity=6)
        for batch in ([a, b, c, d, e, f], [f], [e], [d], [g], [h, i, j]):
            table.lookup(texts(*batch))
        # Of d, e, f the first addition kept all, the second those used later.
        compute.asked.clear()
        table.lookup(texts(d, e, g, h, i, j))
        assert compute.asked == []
        table.lookup(texts(f))
        assert compute.asked == [f]


def test_a_random_stream_stays_exact_under_a_small_capacity():
    rng = np.random.default_rng(0)
    table = MessageTable(Counting(), 2.0, capacity=32)
    for _ in range(60):
        rows = rng.integers(0, 6, (rng.integers(0, 40), 3)).astype(np.uint8)
        np.testing.assert_array_equal(table.lookup(rows).values, 2.0 * rows.sum(axis=1))
        assert len(table) <= 32
    table.swap(3.0, version=7)
    after = table.lookup(rows)
    assert (after.values.tolist(), after.version) == ((3.0 * rows.sum(axis=1)).tolist(), 7)


def test_a_full_table_grows_no_further():
    rows = np.random.default_rng(0).integers(0, 256, (40, 128, 256)).astype(np.uint8)
    table, used = MessageTable(lambda params, rows: np.zeros(len(rows)), 1.0, capacity=256), []
    tracemalloc.start()
    for batch in rows:
        table.lookup(batch)
        used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert len(table) <= 256
    assert max(used) < 3 * 256 * rows.shape[-1], "40 batches of 32 KB each, of which it may keep two"
