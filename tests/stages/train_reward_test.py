"""train_reward through the real flags: files, resume after a kill, refusals."""

from __future__ import annotations

import csv
import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from motif_jax.datasets.split import torch_split
from motif_jax.rewards.trained import read_trained
from motif_jax.stages import train_reward
from motif_jax.support.errors import UserError
from tests.reward_fixtures import (
    REPOSITORY,
    command,
    environment,
    launch,
    load_config,
    make_dataset,
    reward_config,
    train,
    write_labels,
)

SMALL = ("--config.annotator=test", "--config.network.hidden_dim=32", "--config.chunk_steps=1")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "dataset"
    make_dataset(folder, pairs=500)
    return folder


def flags(dataset: Path, *more: str) -> tuple[str, ...]:
    return (f"--config.dataset_dir={dataset}", *SMALL, *more)


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def kill_when(process: subprocess.Popen, condition, number: int) -> None:
    """Sends a signal as soon as `condition` holds."""
    deadline = time.monotonic() + 200
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "it ended before the signal"
    process.send_signal(number)


def start(workdir: Path, *more: str) -> subprocess.Popen:
    return subprocess.Popen(
        command("train_reward", workdir, *more), cwd=REPOSITORY, env=environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def complete_steps(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdigit()]


@pytest.mark.slow
def test_killed_in_the_middle_of_an_epoch_it_ends_with_the_same_bits(dataset, tmp_path):
    given = flags(dataset, "--config.save_every_seconds=0.000001", "--config.epochs=3")
    whole = tmp_path / "whole"
    launch("train_reward", whole, *given)
    steps_per_epoch = -(-(461 * 8 // 10 + 1) // 32)
    killed = tmp_path / "killed"
    places = (steps_per_epoch // 2, steps_per_epoch + 3)
    for number, place in zip((signal.SIGKILL, signal.SIGTERM), places, strict=True):
        process = start(killed, *given)
        kill_when(process, lambda: max(complete_steps(killed / "resume"), default=0) >= place, number)  # noqa: B023
        code = process.wait(timeout=100)
        assert code == (-signal.SIGKILL if number == signal.SIGKILL else 75)
        assert read_trained(killed).step < 3
    launch("train_reward", killed, *given)
    one, other = read_trained(whole), read_trained(killed)
    assert one.step == other.step == 3
    for a, b in zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.statistics == other.statistics
    for name in ("train_metrics.csv", "val_metrics.csv", "reward_metrics/train_norm_quantiles.csv"):
        assert (whole / name).read_text() == (killed / name).read_text()
    steps = [json.loads(line)["step"] for line in (killed / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, *itertools.accumulate([steps_per_epoch] * 3)]
    # Done is done: the same command again changes nothing.
    before = (killed / "summary.json").read_bytes()
    launch("train_reward", killed, *given)
    assert (killed / "summary.json").read_bytes() == before


@pytest.mark.slow
def test_wrong_input_is_one_line_and_code_2(dataset, tmp_path):
    printed = launch("train_reward", tmp_path / "r", *flags(dataset, "--config.batch_size=0"), code=2)
    assert printed.strip().splitlines()[-1] == "error: config.batch_size=0: must be a number above 0"


def test_a_run_of_other_values_or_other_labels_is_refused(dataset, tmp_path):
    make_dataset(tmp_path / "d", pairs=80)
    config = reward_config(tmp_path / "d")
    workdir = train(tmp_path / "r", config)
    config.optimizer.learning_rate = 0.5
    with pytest.raises(UserError, match=r"optimizer.learning_rate: 0.001 before, 0.5 now"):
        train_reward.check(config, workdir)
    config.optimizer.learning_rate = 0.001
    write_labels(tmp_path / "d", "test", np.zeros(80, np.int8))
    with pytest.raises(UserError, match="another dataset or other labels"):
        train_reward.run(config, workdir)


@pytest.mark.slow
def test_files_have_the_published_columns(dataset, tmp_path):
    overrides = {"compat.quantile_two_decimals": True, "compat.running_statistics": True, "epochs": 2}
    workdir = train(tmp_path / "r", reward_config(dataset, **overrides))
    trained_rows = rows(workdir / "train_metrics.csv")
    assert list(trained_rows[0]) == ["epoch", "total_train_loss", "total_train_acc"]
    assert [row["epoch"] for row in trained_rows] == ["1", "2"]
    validation = rows(workdir / "val_metrics.csv")
    assert list(validation[0]) == ["iter", "total_val_loss", "score_validation_accs", "validation_accs"]
    assert len(validation) == 3
    assert float(validation[-1]["total_val_loss"]) < float(validation[0]["total_val_loss"])
    quantiles = rows(workdir / "reward_metrics" / "train_norm_quantiles.csv")
    assert len(quantiles) == 3
    assert len(quantiles[0]) == 19
    assert all(len(cell.split(".")[1]) == 2 for cell in quantiles[0].values())
    for step in range(3):
        model = read_trained(workdir, step)
        assert [f"{q:.2f}" for q in model.statistics["quantiles"]] == list(quantiles[step].values())
        assert len(model.curve) == step + 1
    summary = json.loads((workdir / "summary.json").read_text())
    assert summary["last"]["train/accuracy"] > 0.6
    assert summary["last"]["train/loss_pairs"] == len(torch_split(461, 777)[0])


def test_faithful_is_the_published_command():
    config = load_config("train_reward", "faithful")
    assert (config.batch_size, config.epochs, config.seed) == (1024, 10, 777)
    assert config.optimizer.learning_rate == 1e-5
    assert config.dataset_dir == "motif_dataset"
    assert all(config.compat.values())
    assert not any(load_config("train_reward", "").compat.values())
    with pytest.raises(ValueError, match="'smoke'"):
        load_config("train_reward", "nonsense")


@pytest.mark.slow
def test_early_stopping_and_an_ensemble(dataset, tmp_path):
    overrides = {
        "early_stopping.patience": 1, "epochs": 30, "optimizer.learning_rate": 1e-30,
        "ensemble.members": 2, "network.hidden_dim": 32,
    }  # fmt: skip
    workdir = train(tmp_path / "r", reward_config(dataset, **overrides))
    summary = json.loads((workdir / "summary.json").read_text())
    assert summary["stopped_early"]
    assert summary["evaluations"] == 2
    assert summary["best_evaluation"] == 0
    model = read_trained(workdir)
    assert model.members == 2
    assert model.statistics["disagreement"] > 0
    members = model.members_of_messages(model.params, np.eye(4, 256, dtype=np.uint8) * 65)
    np.testing.assert_allclose(
        members.mean(0), model.of_messages(model.params, np.eye(4, 256, dtype=np.uint8) * 65)
    )
    assert members.shape == (2, 4)
    assert not np.allclose(members[0], members[1])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            {"network.message": "lstm"},
            "config.network.message='lstm': must be one of lt_cnn, lt_cnn_small, none",
        ),
        ({"network.crop": True}, "the crop needs the status"),
        ({"network.message": "none"}, "at least one of message"),
        ({"network.glyphs": True}, r"data/glyphs.npy is missing"),
        ({"annotator": None}, "must name annotations of the dataset: test"),
        ({"annotator": "test,other"}, "other.npy does not exist"),
        ({"labels.annotator_weights": "1,2"}, "1 positive numbers"),
        ({"labels.soft": True}, "probabilities.npy is missing"),
        ({"labels.ties": "lost"}, "must be one of half, drop"),
        ({"optimizer.schedule": "steps"}, "must be one of constant"),
        ({"num_devices": 64}, "config.num_devices=64: must be at most"),
        ({"num_devices": 3}, "config.batch_size=32: must be a multiple of the 3 devices"),
        ({"train_fraction": 1.0}, "between 0 and 1"),
        ({"profile.steps": 0}, "config.profile.steps=0: must be a number above 0"),
        ({"dataset_dir": "/nowhere"}, "config.dataset_dir='/nowhere': must be an existing folder"),
    ],
)
def test_bad_values_are_named(dataset, tmp_path, override, words):
    with pytest.raises(UserError, match=words):
        train_reward.check(reward_config(dataset, **override), tmp_path / "r")


def test_wandb_that_is_not_installed_is_told_before_any_work(dataset, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'motif-jax\[wandb\]'"):
        train_reward.check(reward_config(dataset, **{"wandb.enabled": True}), tmp_path / "r")
