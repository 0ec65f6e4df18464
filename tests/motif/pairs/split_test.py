import itertools

import numpy as np

from motif_jax.motif.pairs.targets import torch_split


def test_golden_split(golden):
    cases = golden("split.json")
    for num, case in cases.items():
        train, validation = torch_split(int(num), case["seed"])
        assert (train.size, validation.size) == (case["train_size"], case["validation_size"])
        for part, first in ((train, case["train_first"]), (validation, case["validation_first"])):
            assert part[: len(first)].tolist() == first
        total = int(((np.arange(train.size) + 1) * train).sum()) % 2**31
        assert total == case["train_sum_of_products"]


def test_parts_are_disjoint_and_complete():
    for num, fraction in itertools.product((0, 1, 2, 7, 999), (0.8, 0.5, 0.9)):
        train, validation = torch_split(num, 3, fraction)
        assert sorted([*train.tolist(), *validation.tolist()]) == list(range(num))
        assert abs(train.size - fraction * num) < 1.0 + 1e-9
