"""The training of a reward: equal to a plain loop, on several devices, and resumed."""

import itertools
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training.trainer import OfflineTrainer
from motif_jax.motif.reward import reward_data, reward_task
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.schema import read_section
from tests.reward_fixtures import make_dataset, reward_config, write_labels
from tests.sets import extra

LENGTH = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    make_dataset(folder / "long", pairs=70, length=LENGTH, glyphs=True)
    make_dataset(folder / "plain", pairs=400, messages=50)
    labels = np.load(folder / "plain" / "preference" / "test.npy")
    write_labels(
        folder / "plain", "test", labels, np.random.default_rng(0).dirichlet((1, 1, 1), 400)
    )
    return folder


def make_task(folder, devices=1, **overrides):
    overrides = {"epochs": 2, "chunk_steps": 2, "network.hidden_dim": 32, **overrides}
    config = read_section(RewardConfig, reward_config(folder, **overrides))
    data = reward_data.load(config)
    return reward_task.RewardTask(config, data, DataParallel(jax.local_devices()[:devices]))


def train_epoch(task):
    trainer = OfflineTrainer(task, task.config)
    numbers = []
    carry = trainer.place(task.init_state())
    for start in range(0, task.steps_per_epoch, 2):
        batches = task.batches(start, min(2, task.steps_per_epoch - start))
        carry, metrics = trainer.train_chunk(carry, batches)
        numbers += jax.device_get(metrics)
    return carry.state, {name: np.concatenate([m[name] for m in numbers]) for name in numbers[0]}


def plain_loop(task, optimizer=None):
    """Yields for each epoch the parameters after it, and the losses and the rewards of its batches.

    Every message of every pair is computed, without a list of distinct ones.
    """
    data = task.data
    network = task.network
    optimizer = optimizer or task.optimizer
    params = task.init_state().params
    opt_state = optimizer.init(params)

    def loss(params, inputs, targets, weights):
        rows = {name: x.reshape(-1, *x.shape[3:]) for name, x in inputs.items()}
        rewards = network.reward(params, rows).reshape(-1, 2, data.dataset.length).mean(-1)
        losses = -(targets * jax.nn.log_softmax(rewards)).sum(-1)
        return (losses * weights).sum() / weights.sum(), rewards

    @jax.jit
    def update(params, opt_state, *batch):
        loss_and_rewards, gradient = jax.value_and_grad(loss, has_aux=True)(params, *batch)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss_and_rewards

    for epoch in itertools.count():
        rows = []
        for pairs in task.plan.order(epoch):
            filled = np.maximum(pairs, 0)
            fields = network.architecture.fields
            inputs = {name: jnp.asarray(data.dataset.data[name][filled]) for name in fields}
            targets = data.targets.targets[filled]
            weights = np.where(pairs >= 0, data.targets.weights[filled], 0)
            params, opt_state, loss_and_rewards = update(
                params, opt_state, inputs, targets, weights
            )
            rows.append(jax.device_get(loss_and_rewards))
        yield params, *zip(*rows, strict=True)


def assert_same_change(start, params, expected):
    """The parameters differ from those expected by at most a thousandth of what the training
    changed.
    """
    start, params, expected = jax.device_get((start, params, expected))
    difference = optax.tree.norm(optax.tree.sub(params, expected))
    change = optax.tree.norm(optax.tree.sub(params, start))
    assert difference <= 1e-3 * change


EVERYTHING = {f"network.{name}": True for name in ("status", "crop", "glyphs")} | {
    "network.embedding_dim": 8
}
TUNED = {
    "labels.ties": "drop",
    "labels.smoothing": 0.1,
    "optimizer.schedule": "cosine",
    "optimizer.warmup_steps": 3,
}
SOFT = {"labels.soft": True, "labels.confidence": "probability"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides"), [extra("long", EVERYTHING), ("plain", TUNED), extra("plain", SOFT)]
)
def test_training_equals_the_plain_loop(folder, name, overrides):
    # Momentum instead of Adam's second moment: Adam turns rounding of tiny gradients into whole
    # steps.
    task = make_task(folder / name, **{"optimizer.eps": 1e-2, **overrides})
    start = task.init_state().params
    state, numbers = train_epoch(task)
    params, losses, _ = next(plain_loop(task))
    np.testing.assert_allclose(numbers["loss"], losses, rtol=1e-4)
    assert_same_change(start, state.params, params)
    assert numbers["pairs"].sum() == (task.data.targets.weights[task.data.train] > 0).sum()


@pytest.mark.extra
def test_four_devices_train_as_one(folder):
    overrides = {"ensemble.members": 2, "network.status": True}
    one, many = (
        make_task(folder / "plain", n, **{"optimizer.eps": 1e-2}, **overrides) for n in (1, 4)
    )
    start = one.init_state().params

    state_of_one, metrics_of_one = train_epoch(one)
    state_of_many, metrics_of_many = train_epoch(many)

    for name, values in metrics_of_one.items():
        np.testing.assert_allclose(metrics_of_many[name], values, rtol=1e-3, err_msg=name)
    assert_same_change(start, state_of_many.params, state_of_one.params)
    for leaf in jax.tree.leaves(state_of_many.params):
        first_copy, *copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        assert all(np.array_equal(copy, first_copy) for copy in copies)
    rewards_of_many = many.member_rewards(state_of_one, many.data.messages)
    rewards_of_one = one.member_rewards(state_of_one, one.data.messages)
    np.testing.assert_allclose(rewards_of_many, rewards_of_one, rtol=1e-4, atol=1e-6)


def test_digests_name_the_arrays_that_a_config_changes(folder):
    def changed(name, **overrides):
        digests = make_task(folder / name, **overrides).data.digests
        return {key for key in {*digests, *base} if digests.get(key) != base.get(key)}

    base = make_task(folder / "plain").data.digests
    assert set(base) == {"data/message", "info/score", "labels", "targets", "weights of pairs"}
    for name, value, expected in (
        ("optimizer.learning_rate", 1.0, set()),
        ("labels.smoothing", 0.1, {"targets"}),
        ("labels.ties", "drop", {"weights of pairs"}),
        ("network.status", True, {"data/blstats"}),
    ):
        assert changed("plain", **{name: value}) == expected
    assert changed("long", **EVERYTHING) == {*base, "data/blstats", "data/glyphs"}


@pytest.mark.extra
def test_a_training_begun_on_two_devices_ends_on_one(folder, tmp_path):
    def task_on(devices):
        return make_task(folder / "plain", devices, **{"optimizer.eps": 1e-2})

    undisturbed = task_on(1)
    stopped = task_on(2)
    resumed = task_on(1)
    start = undisturbed.init_state().params
    batches = stopped.batches

    def stopping(first, count):
        if first >= 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return batches(first, count)

    stopped.batches = stopping
    assert OfflineTrainer(undisturbed, undisturbed.config).run(tmp_path / "undisturbed")
    assert not OfflineTrainer(stopped, stopped.config).run(tmp_path / "moved")
    assert OfflineTrainer(resumed, resumed.config).run(tmp_path / "moved")

    expected = newest_params(tmp_path / "undisturbed", undisturbed)
    assert_same_change(start, newest_params(tmp_path / "moved", undisturbed), expected)


def newest_params(folder, task):
    """The parameters of the newest evaluation in a run folder."""
    with Checkpoints(folder / "checkpoints", keep=None, read_only=True) as checkpoints:
        params = jax.device_get(task.init_state().params)
        return checkpoints.restore(None, {"params": params})["params"]


def test_a_small_dataset_gets_the_steps_that_its_texts_need(folder):
    """400 pairs of 50 texts: 3 steps a pass, 120 in two epochs."""
    task = make_task(
        folder / "plain", batch_size=128, **{"least_steps.per_text": 2.4, "least_steps.most": 200}
    )
    plain = make_task(folder / "plain", batch_size=128)
    messages = len(task.data.messages)
    assert task.steps >= 2.4 * messages > task.steps - 2 * task.plan.steps_per_pass
    assert task.steps_per_epoch == task.plan.passes * plain.steps_per_epoch
    assert task.units(task.steps) == task.plan.passes * plain.units(plain.steps)


def test_every_pass_of_an_epoch_shows_each_pair_once(folder):
    task = make_task(folder / "plain", batch_size=128, **{"least_steps.per_text": 2.4})
    passes = np.split(task.plan.order(1), task.plan.passes)
    assert len(passes) > 1
    for order in passes:
        assert np.array_equal(np.sort(order[order >= 0]), np.sort(task.data.train))
    assert not np.array_equal(passes[0], passes[1])


def test_a_large_dataset_keeps_its_epochs(folder):
    task = make_task(
        folder / "plain", batch_size=8, **{"least_steps.per_text": 1000.0, "least_steps.most": 60}
    )
    assert task.plan.passes == 1
