from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.motif.reward.reward_function import as_rows
from motif_jax.motif.reward.reward_model import read_run
from motif_jax.published import exports
from tests.reward_fixtures import load_config, reward_config, run_stage, train

pytestmark = pytest.mark.slow
TEXTS = ["Hello", "", "You see here a key."]


@pytest.mark.extra
def test_an_ensemble_goes_through_a_file_unchanged(trained, tmp_path):
    small = {"network.hidden_dim": 32, "ensemble.members": 2}
    ensemble = train(tmp_path / "b", reward_config(trained.parent / "dataset", **small))
    run_stage("export", tmp_path / "file", "reward", **{"reward.dir": str(ensemble)})
    file = tmp_path / "file" / "reward.safetensors"
    workdir = run_stage("import", tmp_path / "back", "reward", file=str(file))
    expected = rewards.load(ensemble)
    members = expected.trained.members_of_messages(expected.trained.params, as_rows(TEXTS)[0])
    statistics = expected.trained.statistics
    deviations = np.sqrt(np.c_[statistics["member_variance"]])
    normalised = (members - np.c_[statistics["member_mean"]]) / deviations
    np.testing.assert_allclose(expected.disagreement(TEXTS), normalised.std(axis=0), rtol=1e-4)
    assert expected.disagreement("Hello").shape == ()
    for source in (file, workdir):
        reward = rewards.load(source)
        np.testing.assert_array_equal(reward.raw(TEXTS), expected.raw(TEXTS))
        np.testing.assert_array_equal(reward.intrinsic(TEXTS), expected.intrinsic(TEXTS))
    imported = read_run(workdir)
    assert imported.statistics == expected.trained.statistics
    assert imported.members == expected.trained.members


@pytest.mark.extra
def test_a_refused_export_leaves_its_folder_to_any_other_command(trained, tmp_path):
    config = load_config("export", "reward", {"reward.dir": str(trained), "reward.step": 9})
    exports.check(config, tmp_path / "out")
    with pytest.raises(UserError, match="has no checkpoint 9"):
        exports.run(config, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".lock"}


def test_the_terminal_shows_extremes_threshold_and_paid_messages(trained, tmp_path, capsys):
    workdir = run_stage("explain_reward", tmp_path / "out", "", **{"reward.dir": str(trained)})
    printed = capsys.readouterr().out
    summary = json.loads((workdir / "summary.json").read_text())
    (reward,) = summary["rewards"]
    best, worst = printed.split("worst 10 messages")
    assert all(repr(text) in best for text in reward["most_liked"])
    assert all(repr(text) in worst for text in reward["least_liked"])
    share = f"pays {reward['paying_messages']} of {summary['messages']} messages, on "
    assert f"threshold {reward['threshold']:.3f}, {share}" in printed


def test_the_dataset_of_a_reward_is_found_from_another_folder(trained, tmp_path, monkeypatch):
    moved = tmp_path / "moved"
    shutil.copytree(trained, moved / "runs/reward")
    shutil.copytree(trained.parent / "dataset", moved / "runs/dataset")
    config = json.loads((moved / "runs/reward/config.json").read_text())
    (moved / "runs/reward/config.json").write_text(
        json.dumps(config | {"dataset_dir": "runs/dataset"})
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    workdir = run_stage(
        "explain_reward", tmp_path / "out", "", **{"reward.dir": "../moved/runs/reward"}
    )
    assert str(moved / "runs/dataset") in (workdir / "explain.html").read_text()
