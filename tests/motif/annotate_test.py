"""annotate and merge_annotations without a model: what is told and written, shard by shard, and how a run ends before its end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.interruption import EXIT_CODE
from motif_jax.motif import annotate
from motif_jax.motif.annotation.session import AnnotationSession
from tests import recorded_outputs
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
def given(tmp_path: Path) -> dict[str, Any]:
    dataset = write_dataset(tmp_path / "dataset", PAIRS)
    return {"dataset_dir": str(dataset), "store_dir": str(tmp_path / "store"), "name": "n"}


def test_shards_are_merged_by_the_last(given: dict[str, Any], tmp_path: Path, capsys, record: bool) -> None:
    """And asked anew, in both orders, about status, by chance, and combined."""
    runs: tuple[dict[str, Any], ...] = (
        {"num_shards": 11, "shard_index": 1},
        {"num_shards": 2},
        {"num_shards": 2, "shard_index": 1},
        {"restart": True},
        {"name": "both", "orders": "both", "captions.status": True, "keep_conversations": True},
        {"name": "few", "orders": "given", "limit": 1},
        {"name": "", "annotator": "random"},
        {"dry_run": True},
    )
    for place, run in enumerate(runs):
        run_stage("annotate", tmp_path / f"run_{place}", "", **given | run)
    del given["store_dir"], given["name"]
    for name, method in (("", "majority"), ("votes", "majority"), ("means", "mean")):
        run_stage("merge_annotations", tmp_path / f"merged_{name}", "", **given, name=name, method=method)
    names = {tmp_path: "FOLDER"}
    written = recorded_outputs.of_folder(tmp_path, names)
    parts = {name: text for name, text in written.items() if "config.json" not in name}
    parts["printed"] = recorded_outputs.replaced(capsys.readouterr().out, names)
    recorded_outputs.assert_matches_packed_recording("annotate_shards", parts, record)


@pytest.mark.parametrize("end", [signal.SIGTERM, OSError])
def test_what_was_tried_is_kept_where_a_run_is_ended(given, tmp_path, monkeypatch, end) -> None:
    def ended(*_: object, **__: object) -> dict[str, Any]:
        if end is OSError:
            raise OSError("full")
        os.kill(os.getpid(), end)
        return {}

    monkeypatch.setattr(AnnotationSession, "ask", ended)
    config = load_config("annotate", "", given)
    if end is OSError:
        with pytest.raises(OSError, match="full"):
            annotate.run(config, tmp_path / "run")
    else:
        assert annotate.run(config, tmp_path / "run") == EXIT_CODE
    found = json.loads((tmp_path / "run/summary.json").read_text())
    assert (found["finished"], found["asked"], found["dataset_questions"]) == (False, 0, 5)


@pytest.mark.parametrize(("mode", "key"), [("analysis", "max_tokens=4096"), ("verdict", "verdict_tokens=64")])
def test_cut_answers_are_reported_with_the_key_that_cuts_them(given, tmp_path, capsys, mode, key) -> None:
    server = Server()
    choice = {"finish_reason": "length", "message": {"content": None, "reasoning_content": "I weigh"}}
    server.behave = lambda number, request: (200, {"choices": [choice]})
    asked = {
        "annotator": "openai",
        "openai.base_url": server.url,
        "openai.model": "judge",
        "answer.mode": mode,
    }
    try:
        run_stage("annotate", tmp_path / "run", "", **given | asked)
    finally:
        server.close()
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["cut_answers"], summary["unknown_notes"]) == (10, {"cut before its end": 5})
    assert f"5 questions stay unknown for it: raise config.sampling.{key}" in capsys.readouterr().out
