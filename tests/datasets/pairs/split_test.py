"""The split is the published one, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.datasets.pairs.split import torch_split


def test_golden_split(golden):
    cases = golden("split.json")
    assert len(cases) >= 3
    for num, case in cases.items():
        train, validation = torch_split(int(num), case["seed"])
        assert (train.size, validation.size) == (case["train_size"], case["validation_size"])
        assert train[: len(case["train_first"])].tolist() == case["train_first"]
        assert validation[: len(case["validation_first"])].tolist() == case["validation_first"]
        total = int(((np.arange(train.size) + 1) * train).sum()) % 2**31
        assert total == case["train_sum_of_products"]


@pytest.mark.parametrize("num", [0, 1, 2, 7, 999])
@pytest.mark.parametrize("fraction", [0.8, 0.5, 0.9])
def test_parts_are_disjoint_and_complete(num, fraction):
    train, validation = torch_split(num, 3, fraction)
    assert sorted([*train.tolist(), *validation.tolist()]) == list(range(num))
    assert abs(train.size - fraction * num) < 1.0 + 1e-9
