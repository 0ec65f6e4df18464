"""`train_reward.py:faithful` at a small size against the published loop, written out plainly: files
and parameters.
"""

import csv
import functools

import jax
import numpy as np
import optax
import pytest

from motif_jax.core.devices.parallel import DataParallel
from motif_jax.motif.pairs.targets import torch_split
from motif_jax.motif.reward import reward_data, reward_task
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.motif.reward.normalisation import RunningMoments
from motif_jax.motif.reward.reward_model import read_run
from motif_jax.schema import read_section
from tests.motif.reward.reward_task_test import plain_loop
from tests.reward_fixtures import load_config, make_dataset, train

BATCH = 32
EPOCHS = 2
SEED = 777
ADAM = optax.adam(1e-5, b1=0.9, b2=0.999, eps=1e-8)


def published_evaluation(folder, reward, params):
    """Means over the batches of (loss, accuracy by the score, accuracy), mean and variance of the
    rewards, quantiles.
    """
    labels = np.load(folder / "preference" / "test.npy")
    known = np.flatnonzero(labels != 3)
    train, validation = (known[part] for part in torch_split(known.size, SEED, 0.8))
    messages = np.load(folder / "data" / "message.npy").reshape(-1, 2, 256)
    score = np.load(folder / "info" / "score.npy")
    score = np.where(score[:, 0] == score[:, 1], 2, score[:, 1] > score[:, 0])

    def rewards_of(rows):
        return np.asarray(reward(params, {"message": rows.reshape(-1, 256)}), np.float64)

    every = rewards_of(messages).reshape(-1, 2)
    rows = []
    moments = RunningMoments()
    for pairs in in_batches(validation):
        some = every[pairs]
        targets = np.array([[1, 0], [0, 1], [0.5, 0.5]])[labels[pairs]]
        log = some - np.logaddexp.reduce(some, axis=-1, keepdims=True)
        accuracies = right(some, score[pairs]), right(some, labels[pairs])
        rows.append((-(targets * log).sum(-1).mean(), *accuracies))
    for pairs in in_batches(train):
        moments.update(every[pairs].reshape(-1))
    values = rewards_of(np.unique(messages[train].reshape(-1, 256), axis=0))
    quantiles = np.quantile(
        (values - moments.mean) / np.sqrt(moments.variance), np.arange(0.05, 0.96, 0.05)
    )
    return np.nanmean(rows, axis=0), (moments.mean, moments.variance), quantiles


def in_batches(pairs):
    return np.split(pairs, range(BATCH, len(pairs), BATCH))


def right(rewards, labels):
    """Share of the pairs without ties that are ordered as labelled; NaN without any."""
    clear = labels != 2
    return (rewards.argmax(-1) == labels)[clear].mean() if clear.any() else np.nan


@pytest.mark.slow
def test_a_faithful_run_equals_the_published_files_and_parameters(tmp_path):
    make_dataset(tmp_path / "dataset", pairs=250, messages=60)
    changes = {"batch_size": BATCH, "epochs": EPOCHS, "num_devices": 1, "annotator": "test"}
    values = load_config(
        "train_reward", "faithful", {**changes, "dataset_dir": str(tmp_path / "dataset")}
    )
    config = read_section(RewardConfig, values)
    assert (config.seed, config.train_fraction) == (SEED, 0.8)
    data = reward_data.load(config)
    task = reward_task.RewardTask(config, data, DataParallel(jax.local_devices()[:1]))
    evaluate = functools.partial(
        published_evaluation, tmp_path / "dataset", jax.jit(task.network.reward)
    )
    start = task.init_state().params
    trained_rows = []
    evaluated = [evaluate(start)]
    for epoch, (learned, losses, rewards) in zip(range(EPOCHS), plain_loop(task, ADAM)):
        batches = [
            (some[pairs >= 0], pairs[pairs >= 0])
            for some, pairs in zip(rewards, task.plan.order(epoch))
        ]
        accuracies = [right(some, data.targets.labels[pairs]) for some, pairs in batches]
        trained_rows.append((epoch + 1, np.mean(losses), np.nanmean(accuracies)))
        evaluated.append(evaluate(learned))
    validated, of_rewards, wanted = (np.array(part) for part in zip(*evaluated, strict=True))
    validated = np.insert(validated, 0, range(EPOCHS + 1), axis=1)

    workdir = train(tmp_path / "run", values)
    for name, columns, rows in (
        ("train_metrics", ["epoch", "total_train_loss", "total_train_acc"], trained_rows),
        (
            "val_metrics",
            ["iter", "total_val_loss", "score_validation_accs", "validation_accs"],
            validated,
        ),
    ):
        header, *csv_rows = csv.reader((workdir / f"{name}.csv").read_text().splitlines())
        assert header == columns
        np.testing.assert_allclose(np.array(csv_rows, float), rows, rtol=1e-5)
    lines = (workdir / "reward_metrics" / "train_norm_quantiles.csv").read_text().splitlines()
    header, *csv_rows = csv.reader(lines)
    assert header == [f"{level:.2f}" for level in np.arange(0.05, 0.96, 0.05)]
    assert all(len(cell.partition(".")[2]) == 2 for row in csv_rows for cell in row)
    # Two decimals: what lies at the edge of two may be rounded either way. Once trained, the
    # parameters are a little apart (below), which moved a quantile by 0.001.
    quantiles = np.array(csv_rows, float)
    np.testing.assert_allclose(quantiles[0], wanted[0], atol=0.0051)
    np.testing.assert_allclose(quantiles, wanted, atol=0.01)

    trained = read_run(workdir)
    before = read_run(workdir, 0).statistics
    assert [before["mean"], before["variance"]] == pytest.approx(of_rewards[0].tolist(), rel=1e-5)
    assert trained.statistics["variance"] == pytest.approx(of_rewards[-1, 1], rel=5e-3)
    # A constant added to all rewards changes no loss: where they lie is rounding, of which Adam
    # makes whole steps. So the mean, and with it all that was written, is compared with that of the
    # very parameters that the run ended with.
    _, (mean, variance), quantiles_of_run = evaluate(trained.params)
    assert trained.statistics["mean"] == pytest.approx(mean, abs=1e-3 * np.sqrt(variance))
    assert trained.statistics["variance"] == pytest.approx(variance, rel=1e-4)
    np.testing.assert_allclose(quantiles[-1], quantiles_of_run, atol=0.0051)
    for tree in (trained.params, learned, start):
        tree["reward_head"].pop("bias")
    apart, moved = (
        optax.tree.norm(optax.tree.sub(learned, tree)) for tree in (trained.params, start)
    )
    # How far rounding alone takes them apart depends on the processor: 0.001 with AVX2, 0.005 with
    # SSE4.2.
    assert apart < 2e-2 * moved
