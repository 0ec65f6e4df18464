"""Labels from probabilities, and agreement."""

from __future__ import annotations

import math

import numpy as np
import pytest

from motif_jax.core.verdicts import FIRST, SECOND, TIE, UNKNOWN
from motif_jax.motif.annotation import labels as L

NAN = float("nan")


def test_average_of_both_orders():
    for forward, reverse, label in (
        ([1, 0, 0], [0, 1, 0], 0),  # the same winner both ways
        ([1, 0, 0], [1, 0, 0], 2),  # always the first shown: a draw
        ([0.6, 0.3, 0.1], [0.35, 0.45, 0.2], 0),
        ([NAN] * 3, [1, 0, 0], 1),  # one order unknown: the other counts
        ([NAN] * 3, [NAN] * 3, 3),
    ):
        mean = L.mean_probabilities(
            np.array([[forward], [np.array(reverse, float)[L.TURNED[:3]]]], float)
        )
        assert L.most_probable(mean)[0] == label
        assert np.isnan(mean).all() or mean.sum() == pytest.approx(1)


def test_cohen_kappa_by_hand():
    # 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no: 0.7 seen, 0.5 by chance.
    tables = np.array([[20, 5], [10, 15]]), np.diag([3, 4, 5]), np.zeros((3, 3)), np.diag([7, 0, 0])
    assert list(map(L.cohen_kappa, tables)) == pytest.approx([0.4, 1, NAN, NAN], nan_ok=True)


def test_position_bias():
    forward, reverse = np.array([[0, 0, 1, 2, 0, 3], [1, 0, 0, 2, 0, 1]])
    assert L.position_bias(forward, reverse) == {
        "pairs": 5,
        "consistent": 3 / 5,
        "first_share": 6 / 8,
    }
    assert all(map(math.isnan, list(L.position_bias(forward[:0], reverse[:0]).values())[1:]))


def test_answers_that_agree_keep_their_label():
    """A tie within an annotator's margin leans to a side by its probabilities."""
    labels = np.array([[TIE, TIE, UNKNOWN, FIRST], [TIE, UNKNOWN, UNKNOWN, SECOND]], np.int8)
    leaning = np.array(
        [[0.4, 0.2, 0.4 - 1e-3], [0.5, 0.2, 0.3], [np.nan] * 3, [0.2, 0.5, 0.3]], np.float32
    )

    assert L.agreed(labels, leaning).tolist() == [TIE, TIE, UNKNOWN, SECOND]
