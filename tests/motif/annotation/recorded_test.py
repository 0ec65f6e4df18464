"""Answers from the conversations of another annotator."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, PAIR
from motif_jax.motif.annotation.annotator import Question
from motif_jax.motif.annotation.conversations import ConversationLog
from motif_jax.motif.annotation.recorded import RecordedAnnotator, read_recorded_answers
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
def conversations(tmp_path):
    """The kept conversations of the lexicon about a dataset, in both orders."""
    dataset = write_dataset(tmp_path / "dataset", PAIRS)
    values = {"dataset_dir": str(dataset), "store_dir": str(tmp_path / "store"), "orders": "both"}
    run = run_stage(
        "annotate", tmp_path / "run", "", **values, name="lexicon", keep_conversations=True
    )
    (path,) = (run / "conversations").glob("*.jsonl.gz")
    return path


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


def test_labels_are_those_of_the_recorded_annotator(conversations, tmp_path) -> None:
    annotate_again(tmp_path, conversations)

    folder = tmp_path / "dataset/annotations"
    first, again = (np.load(folder / name / "probabilities.npy") for name in ("lexicon", "again"))
    np.testing.assert_array_equal(first, again)


def test_a_one_order_judge_replays_from_all_its_commands_files(tmp_path) -> None:
    """Which order is asked depends on who asks, so that about half of the recorded answers are
    turned.
    """
    dataset = write_dataset(tmp_path / "dataset", PAIRS)
    values = {"dataset_dir": str(dataset), "store_dir": str(tmp_path / "once"), "orders": "once"}
    values |= {"name": "lexicon", "keep_conversations": True, "num_shards": 2}
    for index in range(2):
        run_stage("annotate", tmp_path / "run", "", **values, shard_index=index)
    folder = tmp_path / "run" / "conversations"
    assert len(list(folder.glob("*.jsonl.gz"))) == 2

    for orders in ("once", "given"):
        annotate_again(
            tmp_path / orders, folder, dataset_dir=str(dataset), name=orders, orders=orders
        )

    labels = [
        np.load(dataset / "preference" / f"{name}.npy") for name in ("lexicon", "once", "given")
    ]
    np.testing.assert_array_equal(labels[0], labels[1])
    np.testing.assert_array_equal(labels[0], labels[2])


def test_answers_before_a_member_that_a_kill_has_torn_count(tmp_path) -> None:
    def member(first: str) -> bytes:
        answer = {
            "items": [first, "b"],
            "label": "first",
            "probabilities": None,
            "mass": None,
            "turns": [],
        }
        return gzip.compress(json.dumps(answer).encode() + b"\n")

    path = tmp_path / "answers.jsonl.gz"
    torn = member("torn")
    # At its first byte, in its head, and at its end.
    for length in (1, 2, 11, len(torn) - 12):
        path.write_bytes(member("whole") + torn[:length])
        assert list(read_recorded_answers([path], PAIR)) == [("whole", "b")]


def recorded_line(label: str) -> bytes:
    """An answer about (a, b), as a log has it."""
    probabilities = [0.9, 0.1, 0.0] if label == "first" else None
    answer = {
        "items": ["a", "b"],
        "label": label,
        "probabilities": probabilities,
        "mass": None,
        "turns": [],
    }
    return gzip.compress(json.dumps(answer).encode() + b"\n")


@pytest.mark.parametrize(
    "labels", [("first", "unknown"), ("unknown", "first"), ("first", "second")]
)
def test_the_first_known_answer_counts(tmp_path, labels) -> None:
    paths = [tmp_path / f"n.shard-00000-of-00001.{number:04d}.jsonl.gz" for number in range(2)]
    for path, label in zip(paths, labels, strict=True):
        path.write_bytes(recorded_line(label))

    (answer,) = read_recorded_answers(paths, PAIR).values()

    assert (answer.label, answer.probabilities) == (FIRST, (0.9, 0.1, 0.0))


def test_a_folder_with_the_answers_of_two_annotations_is_refused(tmp_path) -> None:
    names = [
        "gold.shard-00000-of-00002.0000",
        "gold.shard-00001-of-00002.0000",
        "combat.shard-00000-of-00001.0000",
    ]
    for name in names:
        (tmp_path / f"{name}.jsonl.gz").write_bytes(recorded_line("first"))

    def check(path: Path) -> None:
        config = annotation_config(
            {"annotator": RECORDED, "options": json.dumps({"file": str(path)})}
        )
        RecordedAnnotator.check(config, PAIR)

    with pytest.raises(
        UserError, match=r"^config\.options=.* has those of combat, gold: name one of its files"
    ):
        check(tmp_path)
    check(tmp_path / f"{names[2]}.jsonl.gz")
    (tmp_path / f"{names[2]}.jsonl.gz").unlink()
    check(tmp_path)


def test_the_page_shows_what_the_recorded_annotator_read(conversations, tmp_path) -> None:
    run = annotate_again(tmp_path, conversations)
    assert (
        "[captions]\nYou kill the newt!\n----\nIt&#x27;s a wall.</pre>"
        in (run / "answers.html").read_text()
    )


def test_what_was_asked_is_shown_and_the_answer_is_not(tmp_path) -> None:
    turns = [
        {"role": role, "content": f"from the {role}"} for role in ("system", "user", "assistant")
    ]
    answer = {
        "items": ["a", "b"],
        "label": "first",
        "probabilities": [0.9, 0.1, 0.0],
        "mass": 1.0,
        "turns": turns,
    }
    path = tmp_path / "answers.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(answer).encode()))
    config = annotation_config({"annotator": RECORDED, "options": json.dumps({"file": str(path)})})

    annotator = RecordedAnnotator(config, PAIR)

    assert (
        annotator.preview(Question("1", ("a", "b"))).text
        == "[system]\nfrom the system\n[user]\nfrom the user"
    )
    assert annotator.preview(Question("2", ("b", "a"))).text == "b\n----\na"


def test_a_question_without_an_answer_is_refused(conversations, tmp_path) -> None:
    other = write_dataset(tmp_path / "other", [("You fall into a pit!", "It's a wall.")])

    with pytest.raises(UserError, match="has no answer about"):
        annotate_again(tmp_path, conversations, dataset_dir=str(other))


def test_a_new_log_of_conversations_stands_behind_all_others(tmp_path):
    """Its file is never one that a kill may have torn, although an earlier one was removed."""
    (tmp_path / "0-of-1.0001.jsonl.gz").write_bytes(b"torn")

    assert ConversationLog(tmp_path, "0-of-1").path.name == "0-of-1.0002.jsonl.gz"
    assert ConversationLog(tmp_path, "1-of-2").path.name == "1-of-2.0000.jsonl.gz"
