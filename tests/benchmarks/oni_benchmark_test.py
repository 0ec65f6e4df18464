"""The benchmark of annotation beside a training, small: a served lexicon, both sides, and the queues on the same stream."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import oni
from motif_jax.rewards.label_log import Label
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
    assert 0 < line["baseline"]["value"] <= 1.000001 * line["table_steps_per_second"]
    assert line["labels"] >= 5
    assert line["questions_by_texts_met"] <= 1
    assert 0 < line["steps_labelled_share"] <= 1
    assert 0 <= line["lost_share"] < 1
    assert line["gradient_step_seconds"] > 0
    # The system counts it in hundredths of a second.
    assert line["client_milliseconds"] >= 0
    assert 0 < line["annotator_megabytes"] < 200
    queues = line["queues"]
    assert queues["frequent"]["asked_by_distinct"] == queues["newest"]["asked_by_distinct"] == 1
    assert queues["published"]["asked_by_distinct"] >= 1
    assert not [pid for pid in descendants(os.getpid()) if "serve_annotator" in command(pid)]


def test_a_label_is_late_by_the_batches_between_its_text_and_its_use() -> None:
    texts = {
        name: np.frombuffer(name.encode().ljust(256, b"\0"), np.uint8) for name in ("old", "new", "unheard")
    }

    def batch(number: int, *shown: str) -> oni.Batch:
        counts = np.array([int(name in shown) for name in texts])
        return oni.Batch(number, 0.5 * number, np.stack(list(texts.values())), counts)

    stream = [batch(4, "old"), batch(5, "old", "new"), batch(6, "new", "unheard"), batch(7), batch(8)]
    labels = [Label(8, 0, ("old",), 1), Label(7, 0, ("new",), 0)]
    assert oni.label_delay(stream, 1, labels) == {"texts": 1, "batches": 2, "seconds": 1.0}
    assert oni.label_delay(stream, 2, labels) == {"texts": 0}


def command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
