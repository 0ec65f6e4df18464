"""score, return and random label pairs by number or by coin."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, SECOND, TIE, label_by_numbers
from motif_jax.motif.annotation.annotator import Question, check_annotator, make_annotator
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
    ("name", "need", "file"),
    [("return", "rewards", "data/rewards.npy"), ("score", "info/score", "info/score.npy")],
)
def test_an_array_without_numbers_or_that_is_missing_is_named(folder, name, need, file):
    (folder / "dataset.json").unlink()  # which has a digest that would tell a damaged file
    array = np.load(folder / file).astype(np.float32)
    array.reshape(4, -1)[2, -1] = np.nan
    np.save(folder / file, array)
    message = (
        rf"config.annotator={name}: .*{file} must be finite, but pair 2 has a number that is not"
    )
    with pytest.raises(UserError, match=message):
        check_annotator(config_of(name, folder))
    (folder / file).unlink()
    with pytest.raises(
        UserError, match=rf"config.annotator={name} needs {need}: .*{file} is missing"
    ):
        check_annotator(config_of(name, folder))
    check_annotator(config_of("random", folder))


@pytest.mark.parametrize("name", ["score", "return", "random"])
def test_keys_of_questions_about_texts_are_refused(folder, name):
    def check(**values):
        check_annotator(
            annotation_config({"annotator": name, "dataset_dir": str(folder), **values})
        )

    with pytest.raises(
        UserError, match=f"config.goal='gold': must be left at 'defaultgoal': the annotator {name}"
    ):
        check(goal="gold")
    with pytest.raises(
        UserError, match=f"config.orders='both': must be left at 'auto': the annotator {name}"
    ):
        check(orders="both")
    for key, value, left in (("messages", False, True), ("status", True, False)):
        words = f"config.captions.{key}={value}: must be left at {left}: the annotator {name}"
        with pytest.raises(UserError, match=words):
            check(**{"captions.status": True, f"captions.{key}": value})
    for orders in ("auto", "once", "given"):
        check(orders=orders)


@pytest.mark.parametrize(
    ("first", "second", "label"), [(2.0, 1.0, FIRST), (-1, 0, SECOND), (0.5, 0.5, TIE)]
)
def test_the_greater_number_wins(first, second, label):
    assert label_by_numbers(first, second) == label
