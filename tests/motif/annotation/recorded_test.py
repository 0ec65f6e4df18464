"""Answers from the store of another annotator, or from conversations that were kept of it."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, PAIR
from motif_jax.motif.annotation.annotator import Answer, Question
from motif_jax.motif.annotation.recorded import RecordedAnnotator, read_recorded_answers
from motif_jax.motif.annotation.store import AnswerStore
from tests.end_to_end.annotate_datasets import write_dataset
from tests.reward_fixtures import annotation_config, run_stage

pytestmark = pytest.mark.slow

TEXTS = ["You kill the newt!", "It's a wall.", "You see here a dagger.", "$ - 4 gold pieces."]
PAIRS = [(first, second) for first in TEXTS for second in TEXTS if first != second]
RECORDED = "motif_jax.motif.annotation.recorded:RecordedAnnotator"


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    """As a command that names the annotator, no longer than the test."""
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    entry_points.trust([RECORDED])


@pytest.fixture
def recorded_store(tmp_path):
    """The answers of the lexicon about a dataset, in both orders."""
    dataset = write_dataset(tmp_path / "dataset", PAIRS)
    store = tmp_path / "recorded"
    values = {"dataset_dir": str(dataset), "store_dir": str(store), "orders": "both"}
    run_stage("annotate", tmp_path / "run", "", **values, name="lexicon")
    return store


def annotate_again(tmp_path, file, **values):
    options = json.dumps({"file": str(file)})
    annotator_values = {
        "annotator": RECORDED,
        "options": options,
        "store_dir": str(tmp_path / "store"),
        "orders": "both",
    }
    all_values = {
        "dataset_dir": str(tmp_path / "dataset"),
        "name": "again",
        **annotator_values,
        **values,
    }
    return run_stage("annotate", tmp_path / "again", "", **all_values)


def test_labels_are_those_of_the_recorded_annotator(recorded_store, tmp_path) -> None:
    annotate_again(tmp_path, recorded_store)

    folder = tmp_path / "dataset/annotations"
    first, again = (np.load(folder / name / "probabilities.npy") for name in ("lexicon", "again"))
    np.testing.assert_array_equal(first, again)


def test_a_one_order_judge_replays_from_all_its_commands_files(tmp_path) -> None:
    """Which order is asked depends on who asks, so that about half of the recorded answers are
    turned.
    """
    dataset = write_dataset(tmp_path / "dataset", PAIRS)
    recorded_store = tmp_path / "once"
    values = {"dataset_dir": str(dataset), "store_dir": str(recorded_store), "orders": "once"}
    values |= {"name": "lexicon", "num_shards": 2}
    for index in range(2):
        run_stage("annotate", tmp_path / "run", "", **values, shard_index=index)
    # As of two tasks that ran at the same time.
    (file,) = recorded_store.glob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[::2]))
    (recorded_store / "other.jsonl").write_bytes(b"".join(lines[1::2]))

    for orders in ("once", "given"):
        annotate_again(
            tmp_path / orders, recorded_store, dataset_dir=str(dataset), name=orders, orders=orders
        )

    labels = [
        np.load(dataset / "preference" / f"{name}.npy") for name in ("lexicon", "once", "given")
    ]
    np.testing.assert_array_equal(labels[0], labels[1])
    np.testing.assert_array_equal(labels[0], labels[2])


def conversation(label: str) -> bytes:
    """An answer about (a, b), as earlier versions have kept it."""
    probabilities = [0.9, 0.1, 0.0] if label == "first" else None
    answer = {
        "items": ["a", "b"],
        "label": label,
        "probabilities": probabilities,
        "mass": None,
        "turns": [],
    }
    return json.dumps(answer).encode() + b"\n"


@pytest.mark.parametrize(
    "labels", [("first", "unknown"), ("unknown", "first"), ("first", "second")]
)
def test_the_first_known_answer_counts(tmp_path, labels) -> None:
    path = tmp_path / "kept.jsonl.gz"
    path.write_bytes(b"".join(gzip.compress(conversation(label)) for label in labels))

    (answer,) = read_recorded_answers([path], PAIR).values()

    assert (answer.label, answer.probabilities) == (FIRST, (0.9, 0.1, 0.0))


def test_a_store_with_the_answers_of_two_judges_is_refused(tmp_path) -> None:
    for judge in ("1", "2"):
        store = AnswerStore(tmp_path, judge)
        store.keep([(Question(judge * 32, ("a", "b")), Answer(FIRST))])
        store.close()
    config = annotation_config(
        {"annotator": RECORDED, "options": json.dumps({"file": str(tmp_path)})}
    )

    with pytest.raises(UserError, match="has the answers of 2 judges: give the one to be recorded"):
        RecordedAnnotator.check(config, PAIR)


def test_a_question_without_an_answer_is_refused(recorded_store, tmp_path) -> None:
    other = write_dataset(tmp_path / "other", [("You fall into a pit!", "It's a wall.")])

    with pytest.raises(UserError, match="has no answer about"):
        annotate_again(tmp_path, recorded_store, dataset_dir=str(other))
