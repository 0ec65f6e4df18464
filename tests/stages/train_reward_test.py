"""train_reward through the real flags: files, resume after a kill, refusals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.rewards.reward_model import read_run
from motif_jax.stages import train_reward
from motif_jax.support.errors import UserError
from motif_jax.support.metrics import read_metrics
from tests.reward_fixtures import make_dataset, reward_config, train, write_labels

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "dataset"
    make_dataset(folder, pairs=500)
    return folder


@pytest.mark.slow
def test_a_run_of_other_values_or_other_labels_is_refused(dataset, tmp_path):
    make_dataset(tmp_path / "d", pairs=80)
    config = reward_config(tmp_path / "d")
    workdir = train(tmp_path / "r", config)
    config.optimizer.learning_rate = 0.5
    with pytest.raises(UserError, match=r"optimizer.learning_rate: 0.001 before, 0.5 now"):
        train_reward.check(config, workdir)
    config.optimizer.learning_rate = 0.001
    labels = np.load(tmp_path / "d" / "preference" / "test.npy")
    write_labels(tmp_path / "d", "test", np.where(labels == 0, 1, labels))
    with pytest.raises(UserError, match=r"was trained on other labels, targets than .* \(test\) has now"):
        train_reward.run(config, workdir)
    before = (workdir / "config.json").read_bytes()
    make_dataset(tmp_path / "other", pairs=80, seed=1)
    config.dataset_dir = str(tmp_path / "other")
    with pytest.raises(UserError, match="was trained on other data/message, info/score, labels, targets"):
        train_reward.run(config, workdir)
    assert (workdir / "config.json").read_bytes() == before


def test_data_that_cannot_be_trained_on_leave_the_folder_free(tmp_path):
    make_dataset(tmp_path / "d", pairs=40)
    unknown = np.full(40, 3, np.int8)
    write_labels(tmp_path / "d", "nothing", unknown)
    write_labels(tmp_path / "d", "one", np.where(np.arange(40) == 0, 0, unknown).astype(np.int8))
    workdir = tmp_path / "r"
    for annotator, words in (
        ("nothing", "no pair has a known label"),
        ("one", "1 labelled pairs are too few"),
    ):
        config = reward_config(tmp_path / "d", annotator=annotator)
        train_reward.check(config, workdir)
        with pytest.raises(UserError, match=words):
            train_reward.run(config, workdir)
    # The corrected command is of another annotator, and nothing stands in its way.
    train_reward.check(reward_config(tmp_path / "d"), workdir)
    assert not (workdir / "config.json").exists()


@pytest.mark.slow
def test_a_training_that_diverges_ends_with_one_line_and_keeps_what_was_good(dataset, tmp_path):
    config = reward_config(dataset, **{"optimizer.learning_rate": 1e30, "epochs": 2})
    with pytest.raises(
        UserError, match=r"diverged: .* smaller --config.optimizer.learning_rate \(it is 1e\+30\)"
    ):
        train(tmp_path / "r", config)
    model = read_run(tmp_path / "r")
    assert model.step == 0
    assert np.isfinite(model.statistics["mean"])
    (batch,) = (tmp_path / "r" / "nonfinite").glob("step-*.npz")
    with np.load(batch) as arrays:
        assert not np.isfinite(arrays["loss"])
        assert arrays["messages"].shape[1:] == (256,)
    assert [row["step"] for row in read_metrics(tmp_path / "r")] == [0]
    lost = dataclasses.replace(model, statistics={**model.statistics, "mean": float("nan")})
    with pytest.raises(UserError, match="evaluation 0: its mean or variance is not finite"):
        lost.normalisation(True, 0.5)


@pytest.mark.slow
def test_the_learning_rate_rises_and_falls_to_the_last_step(dataset, tmp_path):
    overrides = {"epochs": 2, "optimizer.schedule": "linear", "optimizer.warmup_steps": 4}
    workdir = train(tmp_path / "r", reward_config(dataset, **overrides))
    assert [len(read_run(workdir, step).curve) for step in range(3)] == [1, 2, 3]
    metrics = list(read_metrics(workdir))[1:]
    # After its 4 steps of warm-up it falls in a line to 0 at the last of 24.
    steps = np.array([row["step"] for row in metrics])
    rates = [row["optimizer/learning_rate"] for row in metrics]
    np.testing.assert_allclose(rates, 1e-3 * (1 - (steps - 1 - 4) / (steps[-1] - 4)), rtol=1e-5)


@pytest.mark.slow
def test_early_stopping_and_an_ensemble(dataset, tmp_path, capsys):
    overrides = {
        "early_stopping.patience": 1, "epochs": 30, "optimizer.learning_rate": 1e-30,
        "ensemble.members": 2, "network.hidden_dim": 32,
    }  # fmt: skip
    workdir = train(tmp_path / "r", reward_config(dataset, **overrides))
    summary = json.loads((workdir / "summary.json").read_text())
    names = ("stopped_early", "evaluations", "best_evaluation", "used_evaluation")
    assert [summary[name] for name in names] == [True, 2, 0, 0]
    assert summary["used"] == summary["best"]
    model = read_run(workdir)
    assert model.step == 0, "the newest evaluation is the one that was no better"
    assert read_run(workdir, 1).step == rewards.load(workdir, 1).trained.step == 1
    assert len(read_run(workdir, 1).curve) == 2
    assert rewards.load(workdir).trained.step == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "best validation loss" in line]
    assert len(told) == 1, "once is enough"
    assert f"{workdir}: uses evaluation 0 of 0 to 1" in told[0]
    assert model.members == 2
    assert model.statistics["disagreement"] > 0
    messages = np.eye(4, 256, dtype=np.uint8) * 65
    members = model.members_of_messages(model.params, messages)
    assert members.shape == (2, 4)
    np.testing.assert_allclose(members.mean(0), model.of_messages(model.params, messages))
    assert not np.allclose(*members)
