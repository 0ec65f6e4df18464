"""What check_reward asks about the messages of an evaluation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import YES
from motif_jax.oni import check_reward
from motif_jax.oni.label_queue import Label
from motif_jax.play import messages
from motif_jax.play.evaluation_files import MESSAGES
from tests.reward_fixtures import load_config


def test_messages_of_a_run_and_an_evaluation_are_compared_as_the_game_says_them(
    tmp_path, monkeypatch, capsys
):
    counts = {"caf\xe9\nlabelled": 3, "caf\xe9\nnew": 2, "b": 1}
    met = [messages.MessageTally(messages.as_text(k.encode()), n) for k, n in counts.items()]
    (tmp_path / MESSAGES).write_text(json.dumps(list(map(asdict, met))))
    paid = {"caf\xe9\nlabelled": 0.6, "often": 0.5, "seldom": 0.1, "caf\xe9\nnew": 0.7, "c": 0.4}
    reward = SimpleNamespace(
        step=7,
        met={"caf\xe9\nnew": 1, "caf\xe9\nlabelled": 9, "often": 5, "seldom": 4, "unlabelled": 8, "c": 3},
        labels={"caf\xe9\nlabelled": (YES, None), "often": (YES, None), "seldom": (0, None)},
        config={"reward": {"kind": "retrieval", "classifier": {"threshold": 0.65}}},
        params={},
        of_messages=lambda params, rows: np.array(
            [paid[bytes(row).rstrip(b"\0").decode()] for row in rows], np.float32
        ),
    )
    asked = []
    answers = {"caf\xe9\nnew": YES, "c": YES}
    monkeypatch.setattr(check_reward, "open_reward", lambda *place: reward)
    monkeypatch.setattr(
        check_reward, "_ask", lambda folder, texts, seconds: asked.append((folder, texts, seconds)) or answers
    )
    values = {
        "reward.dir": "runs/oni",
        "evaluation": str(tmp_path),
        "least_met": 5,
        "questions": 3,
        "wait_seconds": 9.0,
    }
    config = load_config("check_reward", "", values)
    check_reward.run(config, tmp_path / "check")
    assert asked == [(Path("runs/oni"), ["unlabelled", "c", "caf\xe9\nnew"], 9.0)]
    share = {"value": 0.5, "low": pytest.approx(0.0945, abs=1e-4), "high": pytest.approx(0.9055, abs=1e-4)}
    often, never = ({"share": share, "messages": 2, "against": [text]} for text in ("often", "c"))
    summary = json.loads((tmp_path / "check" / check_reward.SUMMARY).read_text())
    assert summary == {"step": 7, "least_met": 5, "met_often": often, "never_labelled": never}
    told = "reward and annotator agree on 50.0% (9.5% to 90.5%) of the 2 {}; not on {!r}\n"
    kinds = (("labelled messages seen at least 5 times", "often"), ("messages that were never labelled", "c"))
    assert capsys.readouterr().out == "".join(told.format(*kind) for kind in kinds)
    config.minimum, config.evaluation = 0.5, ""
    check_reward.run(config, tmp_path / "check")
    assert capsys.readouterr().out.endswith(
        "messages that were never labelled (of the run itself); not on 'c'\n"
    )
    reward.config["reward"]["kind"] = "classification"
    with pytest.raises(UserError) as error:
        check_reward.run(config, tmp_path / "check")
    assert str(error.value) == (
        "config.minimum=0.5: the reward agrees with its annotator on 0.0% of the 2 messages seen at least 5 times; "
        f"{tmp_path}/check/agreement.json names those where it does not"
    )


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
