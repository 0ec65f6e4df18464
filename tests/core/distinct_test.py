import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from motif_jax.core import distinct


@given(st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=40))
# The same examples every time, however long a busy machine takes for them.
@settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
def test_equal_to_a_dictionary(values):
    rows = np.array(values, np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distinct, "BLOCK_ROWS", 3)
        table, ids = distinct.distinct_rows(rows)
    expected = {}
    for row in rows:
        expected.setdefault(bytes(row), len(expected))
    assert [bytes(row) for row in table] == list(expected)
    assert ids.tolist() == [expected[bytes(row)] for row in rows]


def test_colliding_hashes_do_not_matter(monkeypatch):
    monkeypatch.setattr(distinct, "hash_rows", lambda rows: rows[:, 0].astype(np.uint64))
    rows = np.array([[1, 1], [1, 2], [0, 3], [1, 1], [1, 2]], np.uint8)
    table, ids = distinct.distinct_rows(rows)
    assert table.tolist() == [[1, 1], [1, 2], [0, 3]]
    assert ids.tolist() == [0, 1, 2, 0, 1]


def test_hashes_use_all_bits_and_equal_those_that_are_stored():
    rows = np.eye(256, dtype=np.uint8) * 128
    pairs = np.concatenate([rows | np.roll(rows, shift, axis=0) for shift in range(128)])
    assert len(np.unique(distinct.hash_rows(pairs))) == 256 * 128
    text = np.frombuffer(b"You see here a key.".ljust(256, b"\0"), np.uint8)
    assert distinct.hash_rows(text[None]).tolist() == [12494028032197608913]
    odd = distinct.hash_rows(np.arange(15, dtype=np.uint8).reshape(3, 5)).tolist()
    assert odd == [10102783233333038247, 3246952054495423913, 5630042330744889560]


def test_used_length():
    rows = [[0, 0, 0]], [[1, 0, 0], [0, 0, 5]], [[0, 7, 0]]
    assert [distinct.used_length(np.array(row, np.uint8)) for row in rows] == [0, 3, 2]
