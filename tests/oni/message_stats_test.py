"""The table of the texts that an agent has seen."""

from __future__ import annotations

import io

import numpy as np

from motif_jax.oni.message_stats import NO_LABEL, MessageStats


def test_it_is_packed_whole_and_grows() -> None:
    stats = MessageStats()
    texts = [*(f"text {number}" for number in range(2500)), "é\0", ""]
    rows = stats.rows(texts, 4, 2)
    stats.count[rows] += 3
    stats.label[rows[::2]] = 1
    stats.earned[rows[1]] = 0.25
    again = MessageStats.unpack(MessageStats.pack(stats.columns()))
    assert again.texts == texts
    assert again.row("") == 2501
    np.testing.assert_array_equal(again.count[:2502], 3)
    np.testing.assert_array_equal(again.label[:4], [1, NO_LABEL, 1, NO_LABEL])
    np.testing.assert_array_equal(again.earned[:2], [0, 0.25])
    np.testing.assert_array_equal(again.first_step[:2502], 4)
    np.testing.assert_array_equal(again.first_update[:2502], 2)
    assert again.rows(["new", "", "new"], 5, 3).tolist() == [2502, 2501, 2502]


def test_columns_keep_their_names_in_checkpoints() -> None:
    packed = MessageStats.pack(MessageStats().columns())
    with np.load(io.BytesIO(packed.tobytes())) as arrays:
        names = (
            "count first_step first_number first_time label probability used earned _texts _lengths"
        )
        assert set(arrays) == set(names.split())
