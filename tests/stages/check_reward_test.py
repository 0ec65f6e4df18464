"""What check_reward asks about the messages of an evaluation."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from motif_jax.datasets.verdicts import YES
from motif_jax.labels.label_queue import Label
from motif_jax.reports import messages
from motif_jax.reports.evaluation_files import MESSAGES
from motif_jax.stages import check_reward
from tests.reward_fixtures import load_config


@pytest.mark.slow
def test_messages_of_an_evaluation_are_asked_about_as_the_game_says_them(tmp_path, monkeypatch):
    counts = {"caf\xe9\nlabelled": 3, "caf\xe9\nnew": 2}
    met = [messages.MessageTally(messages.as_text(k.encode("latin-1")), n) for k, n in counts.items()]
    (tmp_path / MESSAGES).write_text(json.dumps(list(map(asdict, met))))
    reward = SimpleNamespace(
        step=7,
        met={"caf\xe9\nnew": 1},
        labels={"caf\xe9\nlabelled": (YES, None)},
        config={"reward": {"kind": "retrieval"}},
        params={},
        of_messages=lambda params, rows: np.ones(len(rows), np.float32),
    )
    asked = []
    monkeypatch.setattr(check_reward, "open_reward", lambda *place: reward)
    monkeypatch.setattr(check_reward, "_ask", lambda folder, texts, _: asked.extend(texts) or {texts[0]: YES})
    config = load_config("check_reward", "", {"reward.dir": "runs/oni", "evaluation": str(tmp_path)})
    check_reward.run(config, tmp_path / "check")
    assert asked == ["caf\xe9\nnew"]
    summary = json.loads((tmp_path / "check" / check_reward.SUMMARY).read_text())
    assert summary["never_labelled"]["messages"] == 1


class LateService:
    """Answers just when its figures are read."""

    def __init__(self, config, form):
        self.ready = []

    def start(self):
        pass

    close = start

    def enqueue(self, items, counts, scores, step):
        self.items = items

    def queued(self):
        return 0

    def metrics(self):
        self.ready = [Label(item, YES) for item in self.items]
        return {"annotator/queued": 0.0, "annotator/in_flight": 0.0}

    def poll(self):
        ready, self.ready = self.ready, []
        return ready


def test_a_label_that_comes_between_two_looks_is_not_lost(tmp_path, monkeypatch):
    config = load_config("oni", "").to_dict()
    monkeypatch.setattr(check_reward.run_folder, "read_config", lambda folder: config)
    monkeypatch.setattr(check_reward, "LabelService", LateService)
    assert check_reward._ask(tmp_path, ["You kill the newt!"], 60.0) == {"You kill the newt!": YES}
