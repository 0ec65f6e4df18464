"""How often a reward and its annotator agree: on which messages, what is printed, and what is
asked.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.core import run_folder
from motif_jax.core.verdicts import NO, YES
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.oni import check_reward
from motif_jax.oni.label_queue import Label
from motif_jax.oni.online_model import OnlineRewardModel
from motif_jax.play import messages
from motif_jax.play.evaluation_files import MESSAGES
from tests.reward_fixtures import load_config

# Rewards of the run's messages; a classifier also rates those without a label.
REWARDS = {"caf\xe9\nlabelled": 0.6, "often": 0.5, "seldom": 0.1, "caf\xe9\nnew": 0.7, "c": 0.4}
MET = {"caf\xe9\nnew": 1, "caf\xe9\nlabelled": 9, "often": 5, "seldom": 4, "unlabelled": 8, "c": 3}
LABELS: dict[str, tuple[int, float | None]] = {
    "caf\xe9\nlabelled": (YES, None),
    "often": (YES, None),
    "seldom": (NO, None),
}
MOMENTS = {"mean": 0.0, "variance": 1.0, "member_mean": [0.0], "member_variance": [1.0]}


class RatedMessages(OnlineRewardModel):
    """A reward of known values in place of a network's."""

    def members_of_messages(self, params: Any, messages: np.ndarray) -> np.ndarray:
        texts = [bytes(row).rstrip(b"\0").decode() for row in messages]
        return np.array([[REWARDS[text] for text in texts]], np.float32)


def rated_messages(kind: str) -> RatedMessages:
    config = {
        "reward": {
            "kind": kind,
            "classifier": {"threshold": 0.65},
        },
        "compat": {},
    }
    network = RewardNetwork(RewardArchitecture(message="lt_cnn_small"))
    return RatedMessages(
        Path("run"), 7, network, {}, 1, MOMENTS, config, [], labels=LABELS, taken=3, step_counts=MET
    )


class AnsweringService:
    """Answers what it knows when its figures are read, just before the labels are taken."""

    answers = {"caf\xe9\nnew": YES, "c": YES}
    questions: list[str] = []

    def __init__(self, config: Any, form: Any) -> None:
        self.ready: list[Label] = []

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def enqueue(self, items: Any, counts: Any, scores: Any, step: int) -> None:
        type(self).questions = [item[0] for item in items]

    def metrics(self) -> dict[str, float]:
        self.ready = [
            Label((text,), self.answers[text]) for text in self.questions if text in self.answers
        ]
        type(self).answers = {}
        return {"annotator/queued": 0.0, "annotator/in_flight": 0.0}

    def poll(self) -> list[Label]:
        labels = self.ready
        self.ready = []
        return labels


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfigDict:
    run = tmp_path / "oni"
    run_folder.write_config(run, run_folder.as_plain(load_config("oni", "")))
    evaluation = tmp_path / "evaluation"
    run_folder.write_config(evaluation, {"stage": "evaluate"})
    counts = {"caf\xe9\nlabelled": 3, "caf\xe9\nnew": 2, "b": 1}
    tallies = [
        messages.MessageTally(messages.as_text(text.encode()), count)
        for text, count in counts.items()
    ]
    (evaluation / MESSAGES).write_text(json.dumps([asdict(tally) for tally in tallies]))

    monkeypatch.setattr(check_reward, "open_reward", lambda *arguments: rated_messages("retrieval"))
    monkeypatch.setattr(check_reward, "LabelService", AnsweringService)
    monkeypatch.setattr(check_reward, "LEAST_MET", 5)
    monkeypatch.setattr(AnsweringService, "answers", {"caf\xe9\nnew": YES, "c": YES})
    values = {"reward.dir": str(run), "evaluation": str(evaluation), "questions": 3}
    return load_config("check_reward", "", values)


def test_the_most_frequent_messages_without_a_label_are_asked(
    config: ConfigDict, tmp_path: Path
) -> None:
    check_reward.run(config, tmp_path / "check")

    # Steps of the run and of the evaluation together: "unlabelled" 8, "c" 3, "caf\xe9\nnew" 1 + 2.
    assert AnsweringService.questions == ["unlabelled", "c", "caf\xe9\nnew"]


def test_the_summary_has_shares_with_intervals_and_messages_against(
    config: ConfigDict, tmp_path: Path
) -> None:
    check_reward.run(config, tmp_path / "check")

    summary = json.loads((tmp_path / "check" / check_reward.SUMMARY).read_text())
    share = {
        "value": 0.5,
        "low": pytest.approx(0.0945, abs=1e-4),
        "high": pytest.approx(0.9055, abs=1e-4),
    }
    assert summary == {
        "step": 7,
        "least_met": 5,
        "met_often": {"share": share, "messages": 2, "against": ["often"]},
        "never_labelled": {"share": share, "messages": 2, "against": ["c"], "asked": 3},
    }


def test_questions_without_an_answer_are_counted(
    config: ConfigDict, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnsweringService, "answers", {})

    check_reward.run(config, tmp_path / "check")

    last_line = capsys.readouterr().out.splitlines()[-1]
    assert last_line.startswith(
        "none of the messages that were never labelled has an answer: 3 of 3 were not answered"
    )


def test_without_an_evaluation_messages_of_the_run_are_asked(
    config: ConfigDict, tmp_path: Path, capsys
) -> None:
    config.evaluation = ""

    check_reward.run(config, tmp_path / "check")

    assert AnsweringService.questions == ["unlabelled", "c", "caf\xe9\nnew"]
    assert "never labelled (of the run itself)" in capsys.readouterr().out


def test_an_agreement_of_the_minimum_is_enough(config: ConfigDict, tmp_path: Path) -> None:
    config.minimum = 0.5

    assert check_reward.run(config, tmp_path / "check") is None


def test_an_agreement_below_the_minimum_ends_with_one(
    config: ConfigDict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config.minimum = 0.5
    monkeypatch.setattr(
        check_reward, "open_reward", lambda *arguments: rated_messages("classification")
    )

    assert check_reward.run(config, tmp_path / "check") == 1

    assert capsys.readouterr().err == (
        "minimum: the reward agrees with its annotator on 0.0% of the 2 messages seen at least 5 times, less than 50.0%; "
        f"{tmp_path}/check/agreement.json names those where it does not\n"
    )


def test_latin_1_letters_are_judged_by_the_utf8_that_fits(
    config: ConfigDict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's 256 bytes that are no UTF-8 become a text of 512 bytes, whose first half networks
    read.
    """
    monkeypatch.setitem(MET, "\xe9" * 256, 10)
    monkeypatch.setitem(LABELS, "\xe9" * 256, (YES, None))
    monkeypatch.setitem(REWARDS, "\xe9" * 128, 0.1)

    check_reward.run(config, tmp_path / "check")

    summary = json.loads((tmp_path / "check" / check_reward.SUMMARY).read_text())
    assert summary["met_often"]["against"] == ["\xe9" * 256, "often"]


def test_no_message_has_no_share() -> None:
    agreement = check_reward.compare({}, {}, {})

    assert agreement.share is None
    assert agreement.messages == 0


def test_messages_that_are_judged_differently_are_named() -> None:
    rewards = {"a": 3, "b": 5, "c": 5, "d": 1}
    labels = {"a": False, "b": True, "c": False, "d": True}

    agreement = check_reward.compare(rewards, dict.fromkeys("abcd", 1), labels)

    assert (agreement.messages, agreement.against, agreement.share.value) == (4, ["c", "a"], 0.5)
    line = "reward and annotator agree on 50.0% (15.0% to 85.0%) of the 4 texts; not on 'c'; 'a'"
    assert check_reward.agreement_line(agreement, "texts") == line


def test_no_messages_have_no_agreement() -> None:
    assert check_reward.compare({}, {}, {}) == (None, 0, [])
