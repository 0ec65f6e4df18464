"""The table of rewards: exact, each text once, bounded, swapped without compiling."""

from __future__ import annotations

import tracemalloc

import numpy as np

from motif_jax.rl.message_table import MessageTable


def texts(*rows: bytes, width: int = 16) -> np.ndarray:
    return np.array([np.frombuffer(row.ljust(width, b"\0"), np.uint8) for row in rows])


class Counting:
    """The sum of a text's bytes times a parameter; remembers the texts that it computed."""

    def __init__(self):
        self.computed = []

    def __call__(self, params, rows):
        self.computed.extend(bytes(row).rstrip(b"\0") for row in rows)
        return rows.sum(axis=1).astype(np.float32) * params


def test_the_least_recently_used_texts_are_dropped():
    for start in range(0, 60, 10):  # texts of other hashes each time
        a, b, c, d, e, f, g, h, i, j = (b"%d" % (start + number) for number in range(10))
        compute = Counting()
        table = MessageTable(compute, 1.0, capacity=6)
        for batch in ([a, b, c, d, e, f], [f], [e], [d], [g], [h, i, j]):
            table.lookup(texts(*batch))
        # Of d, e, f the first addition kept all, the second those used later.
        compute.computed.clear()
        table.lookup(texts(d, e, g, h, i, j))
        assert compute.computed == []
        table.lookup(texts(f))
        assert compute.computed == [f]


def test_a_random_stream_stays_exact_under_a_small_capacity():
    rng = np.random.default_rng(0)
    table = MessageTable(Counting(), 2.0, capacity=32)
    for _ in range(60):
        rows = rng.integers(0, 6, (rng.integers(0, 40), 3)).astype(np.uint8)
        np.testing.assert_array_equal(table.lookup(rows).values, 2.0 * rows.sum(axis=1))
        assert len(table) <= 32


def test_swapped_parameters_replace_all_values():
    table = MessageTable(Counting(), 2.0)
    rows = texts(b"a", b"b")
    table.lookup(rows)

    table.swap(3.0, version=7)

    values, version = table.lookup(rows)
    np.testing.assert_array_equal(values, 3.0 * rows.sum(axis=1))
    assert version == 7


def test_a_full_table_grows_no_further():
    # 40 batches of 32 KB each, of which the table may hold two.
    batches = np.random.default_rng(0).integers(0, 256, (40, 128, 256)).astype(np.uint8)
    table = MessageTable(lambda params, rows: np.zeros(len(rows)), 1.0, capacity=256)
    bytes_used = []
    tracemalloc.start()
    for batch in batches:
        table.lookup(batch)
        bytes_used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert len(table) <= 256
    assert max(bytes_used) < 3 * 256 * batches.shape[-1]
