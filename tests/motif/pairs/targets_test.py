import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.targets import read_targets
from tests.reward_fixtures import make_dataset, write_labels

FIRST = np.array([0, 1, 2, 3, 0, 1], np.int8)
SECOND = np.array([0, 0, 1, 3, 3, 1], np.int8)
NONE = [np.nan] * 3
PROBABILITIES = np.array([[0.9, 0.1, 0], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8], NONE, NONE, [0, 1, 0]])


@pytest.fixture
def dataset(tmp_path):
    make_dataset(tmp_path / "d", pairs=6)
    write_labels(tmp_path / "d", "a", FIRST, PROBABILITIES)
    write_labels(tmp_path / "d", "b", SECOND)
    return PairsDataset.open(tmp_path / "d")


HALF = [0.5, 0.5]
HARD = [[1, 0], [0, 1], HALF, HALF, [1, 0], [0, 1]]
# Without a probability the label counts.
SOFT = [[0.9, 0.1], [0.3, 0.7], HALF, HALF, [1, 0], [0, 1]]
SMOOTH = [[0.9, 0.1], [0.1, 0.9], HALF, HALF, [0.9, 0.1], [0.1, 0.9]]


@pytest.mark.parametrize(
    ("options", "targets", "unsmoothed", "weights"),
    [
        ({}, HARD, HARD, [1, 1, 1, 0, 1, 1]),
        ({"smoothing": 0.2, "ties": "drop"}, SMOOTH, HARD, [1, 1, 0, 0, 1, 1]),
        ({"soft": True}, SOFT, SOFT, [1, 1, 1, 0, 1, 1]),
        ({"confidence": "probability"}, HARD, HARD, [0.9, 0.6, 0.8, 0, 1, 1]),
    ],
)
def test_one_annotator(dataset, options, targets, unsmoothed, weights):
    t = read_targets(dataset, ["a"], **options)
    np.testing.assert_allclose(t.targets, targets, rtol=1e-6)
    np.testing.assert_allclose(t.unsmoothed, unsmoothed, rtol=1e-6)
    np.testing.assert_allclose(t.weights, weights, rtol=1e-6)
    assert t.known.tolist() == [0, 1, 2, 4, 5]
    np.testing.assert_array_equal(t.labels, FIRST)


def test_several_annotators(dataset):
    t = read_targets(dataset, ["a", "b"])
    assert t.targets.tolist() == [[1, 0], [0.5, 0.5], [0.25, 0.75], [0.5, 0.5], [1, 0], [0, 1]]
    assert t.labels.tolist() == [0, 2, 1, 3, 0, 1]
    assert t.weights.tolist() == [1, 1, 1, 0, 1, 1]
    t = read_targets(dataset, ["a", "b"], annotator_weights=[3, 1])
    np.testing.assert_allclose(t.targets[1], [0.25, 0.75])
    assert t.labels[1] == 1
    t = read_targets(
        dataset, ["a", "b"], annotator_weights=[3, 1], confidence="none", smoothing=1.0
    )
    np.testing.assert_allclose(t.targets, 0.5)


@pytest.mark.parametrize(
    ("probabilities", "words"),
    [
        (np.full((6, 3), 0.9), "rows must be probabilities that sum to 1"),
        (np.full((5, 3), 0.5), r"shape \(5, 3\), expected \(6, 3\)"),
    ],
    ids=["no distribution", "of other pairs"],
)
def test_probabilities_that_are_none_are_refused(dataset, probabilities, words):
    write_labels(dataset.folder, "odd", FIRST, np.full((6, 3), 0.9))
    np.save(dataset.folder / "annotations" / "odd" / "probabilities.npy", probabilities)
    with pytest.raises(UserError, match=rf"odd/probabilities\.npy:? {words}"):
        read_targets(dataset, ["odd"], soft=True)
