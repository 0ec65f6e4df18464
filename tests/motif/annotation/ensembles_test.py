"""Several annotations of one dataset: what they agree on, and one label file of them all."""

from __future__ import annotations

import contextlib
import functools
import json
import os

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.motif.annotation import ensembles
from motif_jax.motif.annotation.labels import one_hot
from motif_jax.motif.annotation.shards import Annotation
from tests.reward_fixtures import write_labels

LABELS = {
    "lexicon_msg_gold": [0, 0, 1, 2, 3],
    "lexicon_msg_minbl_gold_reworded": [0, 1, 1, 2, 3],
    "random": [0, 1, 0, 3, 3],
}


@pytest.fixture
def votes(tmp_path):
    return [
        ensembles.read_votes(tmp_path, name, np.array(row, np.int8)) for name, row in LABELS.items()
    ]


def test_votes_have_the_manifests_goal_and_the_files_probabilities(votes, tmp_path):
    assert [vote.goal for vote in votes] == ["gold", "gold", ensembles.NO_GOAL]
    path = Annotation(tmp_path, "random").shard_path(0, 1, "json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"annotator": {"goal": "stairs"}}))
    assert ensembles.read_votes(tmp_path, "random", votes[2].labels).goal == "stairs"
    np.testing.assert_array_equal(votes[0].probabilities, one_hot(votes[0].labels))
    soft = np.full((5, 3), 1 / 3, np.float32)
    write_labels(tmp_path, "random", votes[2].labels, soft)
    vote = ensembles.read_votes(tmp_path, "random", votes[2].labels)
    np.testing.assert_array_equal(vote.probabilities, soft)
    with pytest.raises(UserError, match=r"probabilities.npy: shape \(5, 3\), expected \(4, 3\)"):
        ensembles.read_votes(tmp_path, "random", votes[2].labels[:4])


def test_a_majority_counts_labels_and_a_mean_probabilities(votes):
    merged = ensembles.combine(votes, "majority")
    assert merged.labels.tolist() == [0, 1, 1, 2, 3]
    np.testing.assert_allclose(merged.probabilities[1], [1 / 3, 2 / 3, 0], rtol=1e-6)
    assert ensembles.combine(votes[::2], "majority").labels.tolist() == [0, 2, 2, 2, 3], (
        "a draw is a tie"
    )
    unsure = ensembles.Votes("unsure", "gold", votes[0].labels, np.tile([[0.1, 0.8, 0.1]], (5, 1)))
    three = [votes[0], votes[2], unsure]
    assert [ensembles.combine(three, method).labels[1] for method in ("majority", "mean")] == [0, 1]
    mean = ensembles.combine([votes[0], unsure], "mean")
    assert mean.labels.tolist() == [0, 0, 1, 2, 1]
    np.testing.assert_allclose(mean.probabilities[0], [0.55, 0.4, 0.05], rtol=1e-6)


def test_agreement_is_of_the_pairs_that_both_know(votes):
    """Cohen's kappa by hand: of 4 pairs 3 are equal, where chance gives (2 + 2 + 1) / 16."""
    first = ensembles.agreement(votes)[0]
    chance = (2 * 1 + 1 * 2 + 1 * 1) / 16
    assert (first["pairs"], first["equal"]) == (4, 0.75)
    assert first["kappa"] == pytest.approx((0.75 - chance) / (1 - chance))


def test_agreement_with_an_annotation_of_unknowns_is_no_number(votes):
    nobody = ensembles.Votes("nobody", "gold", np.full(5, 3, np.int8), votes[0].probabilities)
    row = ensembles.agreement([votes[0], nobody])[0]
    assert row["pairs"] == 0
    assert np.isnan([row["equal"], row["kappa"]]).all()


def test_tables_are_of_each_goal_and_across_goals(votes):
    text = ensembles.tables(votes)
    assert [
        line for line in text.splitlines() if "goal" in line.split()[:2] or "across" in line
    ] == [
        "goal gold",
        "no goal",
        "across goals",
    ]
    of_gold, _, across = text.partition("across goals")
    assert "75.0%" in of_gold
    assert across.count("random") == 2


def test_tables_of_one_goal_have_no_part_across_goals(votes):
    assert "across goals" not in ensembles.tables(votes[:2])
    assert "agreement" not in ensembles.tables(votes[:1])


@pytest.mark.parametrize("restart", [False, True])
def test_a_killed_merge_continues_whatever_it_had_written(votes, tmp_path, monkeypatch, restart):
    merged = ensembles.combine(votes, "majority")
    annotation = Annotation(tmp_path, "all")
    if restart:  # of labels that annotate wrote
        annotation.write(ensembles.combine(votes[:1], "mean"), {})
        for suffix, content in (("json", "{}"), ("jsonl", "")):
            annotation.shard_path(2, 4, suffix).write_text(content)

    def counted(left, act, *paths):
        if next(left, None) is None:
            raise KeyboardInterrupt
        act(*paths)

    for allowed in range(100):  # it ends before it writes or removes file number `allowed`
        left = iter(range(allowed))
        for name in ("replace", "unlink"):
            monkeypatch.setattr(os, name, functools.partial(counted, left, getattr(os, name)))
        with contextlib.suppress(KeyboardInterrupt):
            ensembles.write_ensemble(tmp_path, "all", merged, {"names": ["a"]}, restart=restart)
            break
        monkeypatch.undo()
    assert allowed > 2
    np.testing.assert_array_equal(np.load(annotation.preference_path), merged.labels)
    assert not annotation.manifests()
    written = [
        json.loads(path.read_text()) for path in (annotation.ensemble_path, annotation.summary_path)
    ]
    counts = {"pairs": 5, "first": 1, "second": 2, "tie": 1, "unknown": 1}
    assert written == [{"sources": {"names": ["a"]}}, counts]
    with pytest.raises(
        UserError, match=r"all.npy exists already and was made from other labels: choose"
    ):
        ensembles.write_ensemble(tmp_path, "all", merged, {"names": ["b"]}, restart=False)
