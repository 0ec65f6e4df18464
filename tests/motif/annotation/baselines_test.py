"""score, return and random label pairs by number or by coin."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.verdicts import FIRST, SECOND, TIE, label_by_numbers
from motif_jax.motif.annotation.annotator import Question, make_annotator
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.writer import write_pairs
from tests.reward_fixtures import annotation_config


@pytest.fixture
def folder(tmp_path):
    rewards = [[[1, 1], [0, 3]], [[5, 0], [0, 4]], [[1, 2], [2, 1]], [[-1, 0], [0, -2]]]
    data = {"message": np.zeros((4, 2, 2, 256), np.uint8), "rewards": np.array(rewards, np.float32)}
    write_pairs(tmp_path / "set", data, {"score": np.array([[1, 2], [2, 1], [7, 7], [0, -1]])})
    return tmp_path / "set"


def labels(config, folder, num=4):
    annotator = make_annotator(config, dataset=PairsDataset.open(folder))
    answers = dict(
        annotator.annotate([Question(f"{config.annotator}{i}", pair=i) for i in range(num)])
    )
    return [answers[i].label for i in range(num)]


def config_of(name, folder, seed=0):
    return annotation_config({"annotator": name, "seed": seed, "dataset_dir": str(folder)})


def test_the_larger_number_is_preferred(folder):
    for name in ("score", "return"):
        assert labels(config_of(name, folder), folder) == [SECOND, FIRST, TIE, FIRST]


def test_random_is_fair_and_repeatable(folder):
    first, again, other = (
        labels(config_of("random", folder, seed), folder, 4000) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert set(first) == {FIRST, SECOND}
    assert 0.45 < np.mean(first) < 0.55
    annotator = make_annotator(config_of("random", folder), dataset=PairsDataset.open(folder))
    # A coin for every pair, equal captions included, and it says that it is one.
    assert not annotator.reads_items
    assert next(iter(annotator.annotate([Question("a", pair=0)])))[1].probabilities == (0.5, 0.5, 0)


@pytest.mark.parametrize(
    ("first", "second", "label"), [(2.0, 1.0, FIRST), (-1, 0, SECOND), (0.5, 0.5, TIE)]
)
def test_the_greater_number_wins(first, second, label):
    assert label_by_numbers(first, second) == label
