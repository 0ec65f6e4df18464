"""The benchmark of annotation beside a training, small: a served lexicon, both sides, and the queues on the same stream."""

from __future__ import annotations

import json
import os

import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import oni
from motif_jax.rewards.learned import CLASSIFICATION
from tests.processes import descendants


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_both_sides_play_and_each_message_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")
    options = oni.options()
    options.update({"env": "Recall-v0", "workers": 1, "envs_per_worker": 8, "batch_size": 64, "rollout": 8,
                    "kind": CLASSIFICATION, "latency": 0.01, "labels": 5, "seconds": 0.5, "call_batches": 2})  # fmt: skip
    config = ConfigDict({"seed": 1, "repeats": 2, "options": options})
    oni.check(config)
    line = json.loads(json.dumps(oni.run(config)))
    assert line["value"] > 0
    assert 0 < line["baseline"]["value"] <= line["table_steps_per_second"]
    assert line["labels"] >= 5
    assert line["questions_by_texts_met"] <= 1
    assert 0 < line["steps_labelled_share"] <= 1
    assert 0 <= line["lost_share"] < 1
    assert line["gradient_step_seconds"] > 0 < line["client_milliseconds"]
    assert 0 < line["annotator_megabytes"] < 200
    queues = line["queues"]
    assert queues["frequent"]["asked_by_distinct"] == queues["newest"]["asked_by_distinct"] == 1
    assert queues["published"]["asked_by_distinct"] >= 1
    assert not [pid for pid in descendants(os.getpid()) if "serve_annotator" in command(pid)]


def command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
