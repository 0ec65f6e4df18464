"""report and compare: folders that are not what they should be are told, not left out."""

from __future__ import annotations

import json

import pytest

from motif_jax.stages import compare, report
from motif_jax.support.errors import UserError
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation
from tests.reward_fixtures import load_config


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
