"""annotate without a model: labels and summaries, shard by shard, and runs
that end early.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import EXIT_CODE
from motif_jax.core.locks import FolderLock
from motif_jax.core.verdicts import FIRST, SECOND, TIE
from motif_jax.motif import annotate
from motif_jax.motif.annotation.session import AnnotationSession
from tests.chat_server import Server
from tests.end_to_end.annotate_datasets import stored, write_dataset
from tests.reward_fixtures import load_config, run_stage

NEWT = "You kill the newt!"
WALL = "It's a wall."
NOTHING = ""
DAGGER = "You see here a dagger."
GOLD = "$ - 4 gold pieces."
# By the lexicon a newt is worth more than a dagger and gold, these more than nothing, and that more
# than a wall.
PAIRS = [
    (NEWT, WALL),
    (WALL, GOLD),
    (NOTHING, DAGGER),
    (DAGGER, NOTHING),
    (GOLD, WALL),
    (WALL, NEWT),
    (NOTHING, NOTHING),
    (NEWT, GOLD),
    (NEWT, DAGGER),
]
LABELS = [FIRST, SECOND, SECOND, FIRST, FIRST, SECOND, TIE, FIRST, FIRST]
# Pairs of other texts; a pair in the other order is no other question.
DISTINCT = 5


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    dataset = write_dataset(tmp_path / "dataset", PAIRS)
    return {"dataset_dir": str(dataset), "store_dir": str(tmp_path / "store"), "name": "n"}


@pytest.fixture
def summary_of(options: dict[str, Any], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs annotate with changed options in a work folder of its own; gives its summary."""
    folders = (tmp_path / f"run_{number}" for number in itertools.count())

    def run(**changes: Any) -> dict[str, Any]:
        folder = next(folders)
        run_stage("annotate", folder, "", **options | changes)
        return json.loads((folder / "summary.json").read_text())

    return run


def label_file(options: dict[str, Any], name: str = "n") -> Path:
    return Path(options["dataset_dir"]) / "preference" / f"{name}.npy"


def test_the_last_shard_writes_the_labels(options, summary_of, capsys) -> None:
    first = summary_of(num_shards=2)
    assert not label_file(options).exists()
    assert "n: waiting for 1 of 2 shards (1)\n" in capsys.readouterr().out

    second = summary_of(num_shards=2, shard_index=1)

    assert np.load(label_file(options)).tolist() == LABELS
    assert first["asked"] + second["asked"] == DISTINCT
    assert "merged" not in first
    merged = second["merged"]
    assert (merged["first"], merged["second"], merged["tie"], merged["unknown"]) == (5, 3, 1, 0)
    assert (merged["pairs"], merged["questions"]) == (9, DISTINCT)


def test_the_summary_has_the_labels_in_the_judges_order(options, summary_of, capsys) -> None:
    summary = summary_of()

    printed = capsys.readouterr().out.splitlines()
    assert (
        f"{label_file(options)}: 9 pairs, 5 distinct questions; 5 first, 3 second, 1 tie, 0 unknown"
        in printed
    )
    assert (
        f"preferred most (mean probability, comparisons): {NEWT!r} 1.00 (4), {GOLD!r} 0.67 (3), {DAGGER!r} 0.67 (3), {NOTHING!r} 0.00 (2), {WALL!r} 0.00 (4)"
        in printed
    )
    assert f"texts that win are on 22 % of 18 steps: {NEWT!r} 4" in printed
    judge = summary["merged"]["judge"]
    assert judge["advice"] == "5 decided answers are too few to judge the judge."
    assert [caption["caption"] for caption in judge["captions"]] == [
        NEWT,
        GOLD,
        DAGGER,
        NOTHING,
        WALL,
    ]
    assert [caption["comparisons"] for caption in judge["captions"]] == [4, 3, 3, 2, 4]


def test_probabilities_of_a_pair_in_the_other_order_are_swapped(options, summary_of) -> None:
    summary_of()

    probabilities = np.load(
        Path(options["dataset_dir"]) / "annotations" / "n" / "probabilities.npy"
    )
    np.testing.assert_allclose(probabilities.sum(-1), 1.0, rtol=1e-6)
    assert probabilities.argmax(-1).tolist() == LABELS
    # (newt, wall) and (wall, newt).
    np.testing.assert_allclose(probabilities[0], probabilities[5, [1, 0, 2]], rtol=1e-6)


def test_a_restart_discards_labels_but_keeps_the_stored_answers(
    options, summary_of, capsys
) -> None:
    summary_of()

    summary = summary_of(restart=True)

    assert "n: earlier labels discarded\n" in capsys.readouterr().out
    assert (summary["asked"], summary["store_hits"]) == (0, DISTINCT)
    assert np.load(label_file(options)).tolist() == LABELS


def test_a_judge_of_both_orders_agrees_with_itself(options, summary_of) -> None:
    summary = summary_of(name="both", orders="both", **{"captions.status": True})

    # With its status each caption is one of its own.
    assert summary["asked"] == 2 * len(PAIRS)
    assert summary["merged"]["position_bias"] == {"consistent": 1.0, "first_share": 0.5, "pairs": 9}
    assert np.load(label_file(options, "both")).tolist() == LABELS
    asked = [answer["items"] for answer in stored(Path(options["store_dir"]))]
    assert len(asked) == 2 * len(PAIRS)
    for shown, (first, second) in zip(asked[::2], PAIRS, strict=True):
        assert [caption.partition("[Dlvl:")[0].strip() for caption in shown] == [first, second]
    for shown, turned_round in zip(asked[::2], asked[1::2], strict=True):
        assert shown == turned_round[::-1]


def test_a_limit_ends_a_run_before_its_labels(options, summary_of) -> None:
    summary_of()

    summary = summary_of(name="few", orders="given", limit=1)

    # Of eight ordered pairs the store knows those in the order that was asked before.
    assert (summary["questions"], summary["asked"], summary["finished"]) == (8, 1, False)
    assert 0 < summary["store_hits"] <= DISTINCT
    assert not label_file(options, "few").exists()


def test_a_random_annotator_labels_each_pair_under_its_own_name(options, summary_of) -> None:
    summary = summary_of(name="", annotator="random")

    assert (summary["name"], summary["asked"]) == ("random", len(PAIRS))
    labels = np.load(label_file(options, "random"))
    assert set(labels.tolist()) <= {FIRST, SECOND}
    path = Path(options["dataset_dir"]) / "annotations" / "random" / "probabilities.npy"
    assert np.load(path).tolist() == [[0.5, 0.5, 0.0]] * len(PAIRS)


def test_a_dry_run_writes_nothing(options, tmp_path) -> None:
    run_stage("annotate", tmp_path / "dry", "", **options, dry_run=True)

    assert not label_file(options).exists()
    assert not Path(options["store_dir"]).exists()


def test_a_dry_run_takes_its_annotators_pilot_rate(options, tmp_path, capsys) -> None:
    folder = tmp_path / "run"
    pilot = {**options, "name": ""}
    run_stage("annotate", folder, "", **pilot, limit=2)
    capsys.readouterr()

    def time_line(**values: Any) -> str:
        run_stage("annotate", folder, "", **pilot | values, dry_run=True)
        return next(
            line for line in capsys.readouterr().out.splitlines() if line.startswith("time")
        )

    assert f"(measured in {folder})" in time_line()
    assert "not measured yet" in time_line(annotator="random")
    assert "not measured yet" in time_line(annotator="random", name="lexicon_msg_defaultgoal")
    assert "not measured yet" in time_line(goal="gold")


@pytest.mark.parametrize("end", [signal.SIGTERM, OSError])
def test_a_run_that_is_ended_keeps_its_summary(options, tmp_path, monkeypatch, end) -> None:
    def ended(*_: object, **__: object) -> dict[str, Any]:
        if end is OSError:
            raise OSError("full")
        os.kill(os.getpid(), end)
        return {}

    monkeypatch.setattr(AnnotationSession, "ask", ended)
    config = load_config("annotate", "", options)

    if end is OSError:
        with pytest.raises(OSError, match="full"):
            annotate.run(config, tmp_path / "run")
    else:
        assert annotate.run(config, tmp_path / "run") == EXIT_CODE

    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["finished"], summary["asked"], summary["dataset_questions"]) == (
        False,
        0,
        DISTINCT,
    )


def test_a_name_without_a_finished_shard_is_free_for_another_annotator(
    options, summary_of, monkeypatch
) -> None:
    def fails(session: AnnotationSession) -> None:
        raise UserError("no memory for the model")

    with monkeypatch.context() as context:
        context.setattr(AnnotationSession, "start", fails)
        with pytest.raises(UserError, match="no memory"):
            summary_of()

    assert summary_of(annotator="random")["finished"]


def test_labels_without_their_answers_are_not_replaced(options, summary_of) -> None:
    # As of a dataset that was copied without its answers.
    summary_of()
    folder = Path(options["dataset_dir"]) / "annotations" / "n"
    (folder / "shard-00000-of-00001.jsonl").unlink()

    with pytest.raises(UserError, match="belongs to another annotation"):
        summary_of(annotator="random")

    assert np.load(label_file(options)).tolist() == LABELS


def test_a_restart_beside_a_running_shard_discards_nothing(options, summary_of) -> None:
    summary_of()
    folder = Path(options["dataset_dir"]) / "annotations" / "n"

    with (
        FolderLock(folder, ".shard-00000-of-00001.lock"),
        pytest.raises(UserError, match="is in use by process"),
    ):
        summary_of(restart=True)

    assert np.load(label_file(options)).tolist() == LABELS
    assert (folder / "probabilities.npy").exists()


@pytest.mark.parametrize(
    ("mode", "key"), [("analysis", "max_tokens=4096"), ("verdict", "verdict_tokens=64")]
)
def test_cut_answers_are_reported_with_the_key_that_cuts_them(
    options, tmp_path, capsys, mode, key
) -> None:
    server = Server()
    choice = {
        "finish_reason": "length",
        "message": {"content": None, "reasoning_content": "I weigh"},
    }
    server.behave = lambda number, request: (200, {"choices": [choice]})
    judge = {
        "annotator": "openai",
        "openai.base_url": server.url,
        "openai.model": "judge",
        "answer.mode": mode,
    }
    try:
        run_stage("annotate", tmp_path / "run", "", **options | judge)
    finally:
        server.close()
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["cut_answers"], summary["unknown_notes"]) == (10, {"cut before its end": 5})
    assert (
        f"5 questions stay unknown for it: raise config.sampling.{key}" in capsys.readouterr().out
    )
