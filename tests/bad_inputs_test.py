"""Each stage refuses an input that cannot work before anything is written, and names its cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_configs import config_of, refusal_line

# Config, its flags, and the cause that the refusal names. AT is an empty folder.
BAD = [
    ("collect.py:smoke", "length=1000", "config.length"),
    ("annotate.py", "dataset_dir=AT", "AT"),
    # The lexicon would call each pair of status lines a tie; without both, messages were shown.
    (
        "annotate.py:minigrid",
        "probe=True captions.messages=False captions.status=True",
        "config.captions.messages",
    ),
    ("annotate.py:smoke", "probe=True captions.messages=False", "config.captions.messages"),
    ("train_reward.py:smoke", "dataset_dir=AT annotator=test", "AT"),
    ("explain_reward.py", "reward.dir=AT", "AT"),
    ("train_agent.py:recall", "batch_size=100", "config.batch_size"),
    ("oni.py", "annotator.goal=fame", "fame"),
    ("check_reward.py", "reward.dir=AT", "AT"),
    ("collect_trajectories.py:smoke", "policy=nobody", "nobody"),
    ("clone_behaviour.py:smoke", "network.model=AT", "config.trajectories"),
    ("train_language_agent.py:smoke", "network.model=AT", "AT"),
    ("probe_language_agent.py", "policy=AT", "AT"),
    ("test_language_agent.py:smoke", "policy=nobody", "nobody"),
    ("collect_text.py:wordle", "wordle.num_words=300", "config.wordle.num_words"),
    ("train_text.py:wordle_chai", "num_devices=1", "config.initial.policy"),
    ("evaluate_text.py:wordle", "agent=AT", "AT"),
    ("train_upvote.py:smoke", "max_len=80", "config.max_len"),
    ("pretrain_language_model.py:smoke", "texts=AT/none", "AT/none"),
    ("evaluate.py:smoke", "policy=agent agent.dir=AT", "AT"),
    ("visualize.py:smoke", "forms.start=5 forms.stop=3", "config.forms.stop"),
    ("visualize.py", "recorded.evaluation=AT", "AT"),
    ("evaluate_text.py:play", "agent=AT", "AT"),
    ("evaluate_text.py:rank", "agent=AT", "AT"),
    ("report.py", "agent.dir=AT", "AT"),
    ("study.py", "training=", "config.training"),
]


@pytest.mark.parametrize(("config", "flags", "cause"), BAD, ids=[row[0] for row in BAD])
def test_a_stage_refuses_a_bad_input_by_its_cause(
    config: str, flags: str, cause: str, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    given = [f"--config.{flag}" for flag in flags.replace("AT", str(empty)).split()]

    line = refusal_line(config_of(config, *given), tmp_path / "run")

    assert line is not None
    assert cause.replace("AT", str(empty)) in line
