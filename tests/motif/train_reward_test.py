"""What train_reward refuses, and when an ensemble stops early."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, TIE, UNKNOWN
from motif_jax.motif import train_reward
from motif_jax.motif.pairs.targets import torch_split
from motif_jax.motif.reward.reward_model import read_run
from tests.reward_fixtures import make_dataset, reward_config, train, write_labels


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "dataset"
    make_dataset(folder, pairs=500)
    return folder


def test_data_that_cannot_be_trained_on_leave_the_folder_free(tmp_path):
    make_dataset(tmp_path / "d", pairs=40)
    unknown = np.full(40, UNKNOWN, np.int8)
    write_labels(tmp_path / "d", "nothing", unknown)
    write_labels(
        tmp_path / "d", "one", np.where(np.arange(40) == 0, FIRST, unknown).astype(np.int8)
    )
    workdir = tmp_path / "r"
    messages = {"nothing": "no pair has a known label", "one": r"too few labelled pairs \(1\) for"}
    for annotator, words in messages.items():
        config = reward_config(tmp_path / "d", annotator=annotator)
        with pytest.raises(UserError, match=words):
            train_reward.check(config, workdir)
    # A corrected command, with another annotator, may use the same folder.
    train_reward.check(reward_config(tmp_path / "d"), workdir)
    assert not (workdir / "config.json").exists()


@pytest.mark.parametrize(("decided", "part"), [(0, "training"), (1, "validation")])
def test_a_part_of_dropped_ties_alone_is_refused(tmp_path, decided, part):
    make_dataset(tmp_path / "d", pairs=40)
    overrides = {"annotator": "ties", "labels.ties": "drop"}
    # With one decided pair of the training part the validation part has none.
    train_pairs, _ = torch_split(40, reward_config(tmp_path / "d").seed, 0.8)
    labels = np.full(40, TIE, np.int8)
    labels[train_pairs[:decided]] = FIRST
    write_labels(tmp_path / "d", "ties", labels)
    config = reward_config(tmp_path / "d", **overrides, train_fraction=0.8)

    words = rf"^config\.labels\.ties='drop': must be half here: each of the \d+ labelled pairs of the {part} part"
    with pytest.raises(UserError, match=words):
        train_reward.check(config, tmp_path / "r")


@pytest.mark.slow
def test_early_stopping_and_an_ensemble(dataset, tmp_path, capsys):
    # With this rate nothing is learned, so the first evaluation stays the best.
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
    assert model.step == 0
    assert rewards.load(workdir, step=1).trained.step == 1
    assert len(read_run(workdir, step=1).curve) == 2
    lines = [
        line for line in capsys.readouterr().out.splitlines() if "best validation loss" in line
    ]
    assert len(lines) == 1, "once is enough"
    assert f"{workdir}: uses evaluation 0 of 0 to 1" in lines[0]
    messages = np.eye(4, 256, dtype=np.uint8) * 65
    members = model.members_of_messages(model.params, messages)
    np.testing.assert_allclose(members.mean(0), model.of_messages(model.params, messages))
    assert not np.allclose(*members)
    assert model.statistics["disagreement"] > 0
