from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.ilql.tasks.reddit.task import Reddit
from motif_jax.ilql.tasks.text_scores import MAX_CHARACTERS, Toxicity, toxicity_label
from motif_jax.motif.annotation import store
from motif_jax.motif.annotation.lexicon import LexiconAnnotator


def scorer_of(folder: Path) -> Toxicity:
    """The scorer of a new process, by the lexicon, whose answers are in `folder`."""
    return Toxicity("reddit", Reddit({"store": str(folder)}).options)


@pytest.mark.parametrize(
    ("rude", "toxic", "label"),
    [(1.0, 0.71, 2), (0.9, 0.702, 2), (1.0, 0.70, 1), (0.51, 0.70, 1), (1.0, 0.4, 1), (0.3, 0.69, 0), (0.5, 0.6, 0)],
)  # fmt: skip
def test_a_weak_toxic_answer_falls_back_to_rude(rude: float, toxic: float, label: int) -> None:
    """Published: a 2 of less log-probability than -0.355 becomes the likelier of the others."""
    assert toxicity_label(rude, toxic) == label


def test_texts_with_equal_first_characters_have_one_label(tmp_path: Path) -> None:
    scorer = scorer_of(tmp_path)
    longest = "you idiot ".ljust(MAX_CHARACTERS, "x")

    labels = scorer([longest, longest + " and more", "x" * MAX_CHARACTERS + " you idiot"])

    assert labels == [2.0, 2.0, 0.0]


def test_a_second_scorer_reads_each_stored_answer_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = [f"reply {number}" for number in range(50)]
    assert scorer_of(tmp_path)(replies) == [0] * 50
    lines: list[bytes] = []
    decode_line = store.decode_line
    monkeypatch.setattr(store, "decode_line", lambda line: lines.append(line) or decode_line(line))
    scorer = scorer_of(tmp_path)

    labels = [scorer([reply]) for reply in replies[:30]]

    assert labels == [[0]] * 30
    # The answers to two questions about each of 50 texts.
    assert len(lines) == 100


def test_answers_of_another_process_are_taken_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scorer_of(tmp_path)(["you idiot", "thanks"]) == [2, 0]
    monkeypatch.setattr(
        LexiconAnnotator, "annotate", lambda *_: pytest.fail("the annotator was asked again")
    )

    labels = scorer_of(tmp_path)(["thanks", "you idiot"])

    assert labels == [0, 2]


def test_made_up_comments_with_lower_labels_have_higher_scores(tmp_path: Path) -> None:
    options = {"store": str(tmp_path / "store"), "num_comments": 300}
    comments = Reddit(Reddit(options).prepare("recorded", "", tmp_path)).comments

    labels = scorer_of(tmp_path / "store")([comment.text for comment in comments])

    scores = np.array([comment.score for comment in comments])
    means = [scores[np.equal(labels, label)].mean() for label in (2, 1, 0)]
    assert set(labels) == {0, 1, 2}
    assert means == sorted(means)
