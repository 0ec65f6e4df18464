"""report and compare: folders that are not what they should be are told, not left out."""

from __future__ import annotations

import json

import pytest

from motif_jax.stages import compare, report
from motif_jax.support.errors import UserError
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation
from tests.reward_fixtures import load_config, make_dataset, reward_config, train


def configured(stage, **changes):
    config = load_config(stage, "")
    config.update_from_flattened_dict(changes)
    return config


@pytest.mark.parametrize(("key", "stage"), [("agent.dir", "train_agent"), ("reward.dir", "train_reward")])
def test_a_folder_of_another_kind_is_no_run(key, stage, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    config = configured("report", **{key: str(folder)})
    said = rf"config.{key}='.*folder': must be a run of {stage}; it has no config.json"
    with pytest.raises(UserError, match=said):
        report.check(config, tmp_path / "out")
    other = {"train_agent": "train_reward", "train_reward": "train_agent"}[stage]
    (folder / "config.json").write_text(json.dumps({"stage": other}))
    with pytest.raises(UserError, match=rf"must be a run of {stage}; it is one of {other}"):
        report.check(config, tmp_path / "out")
    (folder / "config.json").write_text(json.dumps({"stage": stage}))
    report.check(config, tmp_path / "out")


def test_a_dataset_and_replays_that_are_none(tmp_path):
    with pytest.raises(UserError, match=str(tmp_path)):
        report.check(configured("report", dataset_dir=str(tmp_path)), tmp_path / "out")
    write_agent_run(tmp_path / "agent", episodes=5)
    config = configured("report", **{"agent.dir": str(tmp_path / "agent"), "replays": str(tmp_path)})
    with pytest.raises(UserError, match=r"config.replays=.*: must be a folder with players \(step-\*.html\)"):
        report.check(config, tmp_path / "out")


def test_pictures_of_a_run_are_written(tmp_path):
    write_agent_run(tmp_path / "agent", episodes=50)
    config = configured("report", **{"agent.dir": str(tmp_path / "agent")})
    report.check(config, tmp_path / "out")
    report.run(config, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out" / "plots").iterdir()}
    assert {"metric_speed.png", "metric_policy_lag.pdf", "training_return.png"} <= names
    assert "policy lag" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_a_reward_of_more_than_the_message_has_a_page(tmp_path):
    make_dataset(tmp_path / "dataset", pairs=40, glyphs=True)
    network = {"network.status": True, "network.crop": True, "network.embedding_dim": 8}
    reward = train(tmp_path / "reward", reward_config(tmp_path / "dataset", **network))
    write_evaluation(tmp_path / "agent", "agent", evaluation_rows(30, 5.0, 1))
    write_agent_run(tmp_path / "run", episodes=30)
    lines = [json.loads(line) for line in (tmp_path / "run/episodes.jsonl").read_text().splitlines()[:-1]]
    untraced = [json.dumps({**line, "intrinsic_return": None}) + "\n" for line in lines]
    (tmp_path / "run/episodes.jsonl").write_text("".join(untraced))
    folders = {
        "dataset_dir": tmp_path / "dataset",
        "reward.dir": reward,
        "agent.dir": tmp_path / "run",
        "evaluations": tmp_path / "agent",
    }
    config = configured("report", **{key: str(folder) for key, folder in folders.items()})
    report.check(config, tmp_path / "out")
    report.run(config, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "This reward reads message, blstats, glyphs: what it pays depends on more than the message" in page
    assert "The training cannot be judged: a reward that reads more than the message" in page
    for shown in (
        "accuracy of the reward network",
        "what paid most in the evaluation: agent",
        "most repeated rewarded messages: agent",
        "labels (pairs)",
    ):
        assert shown in page
    for left_out in (
        "most liked",
        "paid first time",
        "Normalised: mean 0",
        "no reward run was given",
    ):
        assert left_out not in page
    against_progress = page.split('<section id="hacking">')[1].split("<section")[0]
    assert "<h3>game score</h3>" in against_progress
    assert "<h3>intrinsic return</h3>" not in against_progress, "a curve of nothing"
    plots = {path.name for path in (tmp_path / "out" / "plots").iterdir()}
    assert "reward_loss.png" in plots
    assert "reward_by_message.png" not in plots


def test_a_scale_that_cannot_be_is_told_with_its_key(tmp_path):
    folders = []
    for method in ("a", "b"):
        folders.append(f"{method}={tmp_path / method}")
        write_evaluation(tmp_path / method, method, evaluation_rows(5, 0.0, 1))
    config = configured(
        "compare",
        methods="; ".join(folders),
        normalise_zero="a",
        normalise_one="c",
        resamples=20,
        plots=False,
    )
    compare.check(config, tmp_path / "out")
    with pytest.raises(UserError, match=r"config.normalise_one='c': must be a method with evaluations: a, b"):
        compare.run(config, tmp_path / "out")
    config.normalise_one = "b"
    with pytest.raises(UserError, match=r"config.normalise_one='b': must have other means"):
        compare.run(config, tmp_path / "out")
