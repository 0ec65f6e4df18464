"""`train_reward.py:faithful` at a small size against the published loop, written out plainly: files and parameters."""

from __future__ import annotations

import csv

import jax
import numpy as np
import pytest

from motif_jax.datasets.pairs.split import torch_split
from motif_jax.devices.parallel import DataParallel
from motif_jax.rewards.reward_model import architecture_of, read_run
from motif_jax.trainers import reward_data
from motif_jax.trainers.reward_task import RewardTask
from tests.reward_fixtures import load_config, make_dataset, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")
BATCH, EPOCHS, SEED = 32, 2, 777
LEARNING_RATE, B1, B2, EPS = 1e-5, 0.9, 0.999, 1e-8


class PublishedLoop:
    """Every message of every pair of a batch goes through the network, one batch after the other.

    The network's function and its initial parameters, which golden numbers pin, and the order of the batches are the
    project's; everything else is written here once more, with numpy and Adam by hand.
    """

    def __init__(self, folder, network, params, orders):
        labels = np.load(folder / "preference" / "test.npy")
        known = np.flatnonzero(labels != 3)
        train, validation = torch_split(known.size, SEED, 0.8)
        self.train, self.validation = known[train], known[validation]
        self.messages = np.load(folder / "data" / "message.npy").reshape(-1, 2, 256)
        self.labels = labels.astype(int)
        self.score = np.load(folder / "info" / "score.npy")
        self.params, self.orders = params, orders
        self.moments = [jax.tree.map(np.zeros_like, params) for _ in range(2)]
        self.steps, self.moments_of_rewards = 0, []
        self.rewards = jax.jit(lambda p, m: network.reward(p, {"message": m}))
        self.rows = {"train": [], "validation": [], "quantiles": []}

        def loss(params, messages, targets):
            rewards = network.reward(params, {"message": messages.reshape(-1, 256)}).reshape(-1, 2)
            return -(targets * jax.nn.log_softmax(rewards)).sum(-1).mean(), rewards

        self.gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))

    def targets(self, pairs):
        return np.array([[1, 0], [0, 1], [0.5, 0.5]], np.float32)[self.labels[pairs]]

    def adam(self, gradient):
        self.steps += 1
        first, second = self.moments
        first = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * np.asarray(g), first, gradient)
        second = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * np.asarray(g) ** 2, second, gradient)
        self.moments = [first, second]

        def moved(p, m, v):
            step = m / (1 - B1**self.steps) / (np.sqrt(v / (1 - B2**self.steps)) + EPS)
            return (p - LEARNING_RATE * step).astype(np.float32)

        self.params = jax.tree.map(moved, self.params, first, second)

    def epoch(self, number):
        losses, accuracies = [], []
        for pairs in np.split(self.orders[number], range(BATCH, len(self.orders[number]), BATCH)):
            (loss, rewards), gradient = self.gradient(self.params, self.messages[pairs], self.targets(pairs))
            losses.append(float(loss))
            accuracies.append(right(np.asarray(rewards), self.labels[pairs]))
            self.adam(gradient)
        self.rows["train"].append((number + 1, np.mean(losses), np.nanmean(accuracies)))

    def evaluate(self, number):
        every = np.asarray(self.rewards(self.params, self.messages.reshape(-1, 256)), np.float64).reshape(
            -1, 2
        )
        losses, accuracies, by_score = [], [], []
        score = np.where(self.score[:, 0] == self.score[:, 1], 2, self.score[:, 1] > self.score[:, 0])
        for pairs in np.split(self.validation, range(BATCH, len(self.validation), BATCH)):
            log = every[pairs] - np.log(np.exp(every[pairs]).sum(-1, keepdims=True))
            losses.append(-(self.targets(pairs) * log).sum(-1).mean())
            accuracies.append(right(every[pairs], self.labels[pairs]))
            by_score.append(right(every[pairs], score[pairs]))
        row = (number, np.mean(losses), np.nanmean(by_score), np.nanmean(accuracies))
        self.rows["validation"].append(row)
        mean, variance, count = 0.0, 1.0, 1e-4
        for pairs in np.split(self.train, range(BATCH, len(self.train), BATCH)):
            values = every[pairs].reshape(-1)
            size, delta = values.size, values.mean() - mean
            squares = variance * count + values.var(ddof=1) * size + delta**2 * count * size / (count + size)
            mean, variance, count = (
                mean + delta * size / (count + size),
                squares / (count + size),
                count + size,
            )
        self.moments_of_rewards.append((mean, variance))
        distinct = np.unique(self.messages[self.train].reshape(-1, 256), axis=0)
        values = np.asarray(self.rewards(self.params, distinct), np.float64)
        levels = np.arange(0.05, 0.96, 0.05)
        self.rows["quantiles"].append(np.quantile((values - mean) / np.sqrt(variance), levels))


def right(rewards, labels):
    """Share of the pairs without ties that are ordered as labelled; NaN without any."""
    clear = labels != 2
    return (rewards.argmax(-1) == labels)[clear].mean() if clear.any() else np.nan


def read(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.mark.slow
def test_a_faithful_run_equals_the_published_loop_in_files_and_parameters(tmp_path):
    make_dataset(tmp_path / "dataset", pairs=250, messages=60)
    config = load_config("train_reward", "faithful")
    assert (config.optimizer.learning_rate, config.optimizer.eps) == (LEARNING_RATE, EPS)
    assert (config.optimizer.b1, config.optimizer.b2) == (B1, B2)
    assert (config.seed, config.train_fraction) == (SEED, 0.8)
    config.dataset_dir, config.annotator = str(tmp_path / "dataset"), "test"
    config.batch_size, config.epochs, config.num_devices = BATCH, EPOCHS, 1
    task = RewardTask(
        config,
        reward_data.load(config, architecture_of(config.network, config.compat)),
        DataParallel(jax.local_devices()[:1]),
    )
    orders = [order[order >= 0] for order in map(task.plan.order, range(EPOCHS))]
    start = task.init_state().params
    loop = PublishedLoop(tmp_path / "dataset", task.network, start, orders)
    loop.evaluate(0)
    for epoch in range(EPOCHS):
        loop.epoch(epoch)
        loop.evaluate(epoch + 1)

    workdir = train(tmp_path / "run", config)
    header, *found = read(workdir / "train_metrics.csv")
    assert header == ["epoch", "total_train_loss", "total_train_acc"]
    np.testing.assert_allclose(np.array(found, float), loop.rows["train"], rtol=1e-5)
    header, *found = read(workdir / "val_metrics.csv")
    assert header == ["iter", "total_val_loss", "score_validation_accs", "validation_accs"]
    np.testing.assert_allclose(np.array(found, float), loop.rows["validation"], rtol=1e-5)
    header, *found = read(workdir / "reward_metrics" / "train_norm_quantiles.csv")
    assert header == [f"{level:.2f}" for level in np.arange(0.05, 0.96, 0.05)]
    assert all(len(cell.partition(".")[2]) == 2 for row in found for cell in row)
    # Two decimals: what lies at the edge of two may be rounded either way. Once trained, the parameters are a little apart
    # (below), which moved a quantile by 0.001.
    quantiles, wanted = np.array(found, float), np.array(loop.rows["quantiles"])
    np.testing.assert_allclose(quantiles[0], wanted[0], atol=0.0051)
    np.testing.assert_allclose(quantiles, wanted, atol=0.01)

    trained = read_run(workdir)
    first, _, last = loop.moments_of_rewards
    before = read_run(workdir, 0).statistics
    assert (before["mean"], before["variance"]) == pytest.approx(first, rel=1e-5)
    assert trained.statistics["variance"] == pytest.approx(last[1], rel=5e-3)
    # A constant added to all rewards changes no loss: where they lie is rounding, of which Adam makes whole steps. So the
    # mean, and with it all that was written, is compared with that of the very parameters that the run ended with.
    learned, loop.params = loop.params, trained.params
    loop.evaluate(EPOCHS)
    mean, variance = loop.moments_of_rewards[-1]
    assert trained.statistics["mean"] == pytest.approx(mean, abs=1e-3 * np.sqrt(variance))
    assert trained.statistics["variance"] == pytest.approx(variance, rel=1e-4)
    np.testing.assert_allclose(quantiles[-1], loop.rows["quantiles"][-1], atol=0.0051)
    for tree in (trained.params, learned, start):
        tree["reward_head"].pop("bias")
    leaves = zip(*map(jax.tree.leaves, (trained.params, learned, start)), strict=True)
    apart, moved = np.sum(
        [(np.sum((one - other) ** 2), np.sum((other - first) ** 2)) for one, other, first in leaves], axis=0
    )
    # How far rounding alone takes them apart depends on the processor: 0.001 with AVX2, 0.005 with SSE4.2.
    assert np.sqrt(apart / moved) < 2e-2
