"""annotate and merge_annotations without a model: what is printed and written, shard by shard, and how a run ends early."""

from __future__ import annotations

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.interruption import EXIT_CODE
from motif_jax.core.verdicts import FIRST, SECOND, TIE
from motif_jax.motif import annotate
from motif_jax.motif.annotation.session import AnnotationSession
from tests.chat_server import Server
from tests.end_to_end.annotate_datasets import write_dataset
from tests.reward_fixtures import load_config, run_stage

TEXTS = [
    "You kill the newt!",
    "It's a wall.",
    "",
    "You see here a dagger.",
    "$ - 4 gold pieces.",
    "It's a wall.",
]
PAIRS = [*zip(TEXTS, TEXTS[::-1], strict=True), ("", ""), (TEXTS[0], TEXTS[4]), (TEXTS[0], TEXTS[3])]


@pytest.fixture
def base_values(tmp_path: Path) -> dict[str, Any]:
    dataset = write_dataset(tmp_path / "dataset", PAIRS)
    return {"dataset_dir": str(dataset), "store_dir": str(tmp_path / "store"), "name": "n"}


def preference(base_values: dict[str, Any], name: str) -> Path:
    return Path(base_values["dataset_dir"]) / "preference" / f"{name}.npy"


def summary_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


def test_the_labels_appear_when_the_last_shard_is_finished(base_values, tmp_path, capsys) -> None:
    run_stage("annotate", tmp_path / "first", "", **base_values, num_shards=2)
    assert "n: waiting for 1 of 2 shards (1)" in capsys.readouterr().out
    assert not preference(base_values, "n").exists()

    run_stage("annotate", tmp_path / "second", "", **base_values, num_shards=2, shard_index=1)

    labels = np.load(preference(base_values, "n"))
    # The lexicon prefers a kill to gold, gold and a dagger to silence, and silence to a wall; equal captions are a tie.
    assert labels.tolist() == [FIRST, SECOND, SECOND, FIRST, FIRST, SECOND, TIE, FIRST, FIRST]


def test_shards_give_the_labels_of_one_command(base_values, tmp_path) -> None:
    for index in range(2):
        run_stage("annotate", tmp_path / f"{index}", "", **base_values, num_shards=2, shard_index=index)
    run_stage("annotate", tmp_path / "whole", "", **base_values | {"name": "whole"})

    np.testing.assert_array_equal(
        np.load(preference(base_values, "n")), np.load(preference(base_values, "whole"))
    )


def test_a_long_list_of_missing_shards_is_abridged(base_values, tmp_path, capsys) -> None:
    run_stage("annotate", tmp_path / "run", "", **base_values, num_shards=11, shard_index=1)

    assert "n: waiting for 10 of 11 shards (0, 2, 3, 4, 5, 6, 7, 8, ...)" in capsys.readouterr().out


def test_a_restart_discards_labels_and_takes_answers_from_the_store(base_values, tmp_path, capsys) -> None:
    run_stage("annotate", tmp_path / "first", "", **base_values)
    capsys.readouterr()

    run_stage("annotate", tmp_path / "second", "", **base_values, restart=True)

    assert "n: 9 labels discarded" in capsys.readouterr().out
    summary = summary_of(tmp_path / "second")
    assert summary["asked"] == 0
    assert summary["store_hits"] == summary["questions"] == 5


def test_both_orders_are_asked_and_their_bias_is_reported(base_values, tmp_path, capsys) -> None:
    run_stage("annotate", tmp_path / "run", "", **base_values, orders="both")

    merged = summary_of(tmp_path / "run")["merged"]
    assert merged["questions"] == 10
    assert merged["position_bias"]["consistent"] == 1.0
    assert merged["position_bias"]["first_share"] == 0.5
    assert "asked both ways 100.0% agree, the caption shown first wins 50.0%" in capsys.readouterr().out


def test_conversations_are_kept_on_request(base_values, tmp_path) -> None:
    run_stage("annotate", tmp_path / "run", "", **base_values, keep_conversations=True)

    (log,) = (tmp_path / "run" / "conversations").iterdir()
    lines = [json.loads(line) for line in gzip.decompress(log.read_bytes()).splitlines()]
    assert len(lines) == 5
    assert {line["label"] for line in lines} <= {"first", "second", "tie"}
    assert all(line["turns"][0]["role"] == "captions" for line in lines)


def test_a_limit_ends_a_pilot_without_labels(base_values, tmp_path) -> None:
    run_stage("annotate", tmp_path / "run", "", **base_values, limit=1)

    summary = summary_of(tmp_path / "run")
    assert summary["asked"] == 1
    assert not summary["finished"]
    assert not preference(base_values, "n").exists()


def test_labels_without_a_name_are_called_by_their_annotator(base_values, tmp_path) -> None:
    run_stage("annotate", tmp_path / "run", "", **base_values | {"name": "", "annotator": "random"})

    assert set(np.load(preference(base_values, "random"))) <= {FIRST, SECOND}


def test_a_dry_run_prints_questions_and_asks_none(base_values, tmp_path, capsys) -> None:
    run_stage("annotate", tmp_path / "run", "", **base_values, dry_run=True)

    printed = capsys.readouterr().out
    assert "pairs        9, 1 of them ties of equal captions" in printed
    assert "questions    5 distinct" in printed
    assert not preference(base_values, "n").exists()


@pytest.mark.parametrize("method", ["majority", "mean"])
def test_annotations_of_one_mind_are_merged_to_it(base_values, tmp_path, capsys, method) -> None:
    run_stage("annotate", tmp_path / "once", "", **base_values)
    run_stage("annotate", tmp_path / "both", "", **base_values | {"name": "both", "orders": "both"})
    dataset = base_values["dataset_dir"]

    run_stage("merge_annotations", tmp_path / "merged", "", dataset_dir=dataset, name="votes", method=method)

    np.testing.assert_array_equal(
        np.load(preference(base_values, "votes")), np.load(preference(base_values, "n"))
    )
    (agreement,) = summary_of(tmp_path / "merged")["agreement"]
    assert {agreement["first"], agreement["second"]} == {"both", "n"}
    assert agreement["pairs"] == 9
    assert agreement["equal"] == 1.0


def test_without_a_name_annotations_are_only_compared(base_values, tmp_path, capsys) -> None:
    run_stage("annotate", tmp_path / "run", "", **base_values)
    before = sorted(preference(base_values, "n").parent.iterdir())

    run_stage("merge_annotations", tmp_path / "merged", "", dataset_dir=base_values["dataset_dir"], name="")

    assert sorted(preference(base_values, "n").parent.iterdir()) == before
    assert "merged" not in summary_of(tmp_path / "merged")


@pytest.mark.parametrize("end", [signal.SIGTERM, OSError])
def test_a_run_that_ends_early_leaves_a_summary(base_values, tmp_path, monkeypatch, end) -> None:
    def end_run(*_: object, **__: object) -> dict[str, Any]:
        if end is OSError:
            raise OSError("full")
        os.kill(os.getpid(), end)
        return {}

    monkeypatch.setattr(AnnotationSession, "ask", end_run)
    config = load_config("annotate", "", base_values)
    if end is OSError:
        with pytest.raises(OSError, match="full"):
            annotate.run(config, tmp_path / "run")
    else:
        assert annotate.run(config, tmp_path / "run") == EXIT_CODE

    summary = summary_of(tmp_path / "run")
    assert not summary["finished"]
    assert summary["asked"] == 0
    assert summary["dataset_questions"] == 5


@pytest.mark.parametrize(("mode", "key"), [("analysis", "max_tokens=4096"), ("verdict", "verdict_tokens=64")])
def test_cut_answers_are_reported_with_the_key_that_cuts_them(
    base_values, tmp_path, capsys, mode, key
) -> None:
    server = Server()
    choice = {"finish_reason": "length", "message": {"content": None, "reasoning_content": "I weigh"}}
    server.behave = lambda number, request: (200, {"choices": [choice]})
    values = {
        "annotator": "openai",
        "openai.base_url": server.url,
        "openai.model": "judge",
        "answer.mode": mode,
    }
    try:
        run_stage("annotate", tmp_path / "run", "", **base_values | values)
    finally:
        server.close()

    summary = summary_of(tmp_path / "run")
    assert summary["cut_answers"] == 10
    assert summary["unknown_notes"] == {"cut before its end": 5}
    assert f"5 questions stay unknown for it: raise config.sampling.{key}" in capsys.readouterr().out
