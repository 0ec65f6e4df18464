"""Measures reward training: pairs a second against a simple loop.

The baseline is a jitted training step of the same network and optimiser that encodes every message
of every pair, one step a call. Both sides learn from the same batches. Without
`options.dataset_dir` the pairs come from random games that are played first.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.benchmarks import result
from motif_jax.core import seeds
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.files import atomic_save_npy
from motif_jax.core.sections import Optimizer
from motif_jax.core.training.trainer import OfflineTrainer
from motif_jax.envs import registry
from motif_jax.envs.spec import RUNNING, empty_observation
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.writer import write_pairs
from motif_jax.motif.reward import preference, reward_data
from motif_jax.motif.reward.config import RewardConfig, RewardNetworkSizes
from motif_jax.motif.reward.reward_data import RewardData
from motif_jax.motif.reward.reward_task import RewardTask


def options() -> ConfigDict:
    """Dataset and annotator (default: `num_pairs` of random games with random labels), steps of
    both sides in a repeat.
    """
    return ConfigDict(
        {
            "dataset_dir": placeholder(str),
            "annotator": placeholder(str),
            "num_pairs": 20_000,
            "batch_size": 1024,
            "learning_rate": 1e-5,
            "steps": 32,
            "baseline_steps": 4,
            "message": "lt_cnn",
            "dtype": "float32",
        }
    )


def random_games(folder: Path, num_pairs: int, seed: int) -> None:
    """Writes a dataset of pairs of single steps from random games, with random labels."""
    environment = registry.make("NetHackScore-v1")
    row = empty_observation(environment.spec)
    rng = seeds.rng(seed, "benchmark")
    messages = np.zeros((2 * num_pairs, 256), np.uint8)
    end = None
    episode = 0
    for step in range(len(messages)):
        if end != RUNNING:
            environment.reset(seeds.derive(seed, "episode", episode), row)
            episode += 1
        messages[step] = row["message"]
        _, end = environment.step(int(rng.integers(environment.spec.num_actions)), row)
    environment.close()
    # As `collect` shuffles steps before it pairs neighbours.
    rng.shuffle(messages)
    write_pairs(folder, {"message": messages.reshape(num_pairs, 2, 1, 256)})
    atomic_save_npy(
        folder / "preference" / "coin.npy", rng.integers(0, 2, num_pairs).astype(np.int8)
    )


def trainer_config(settings: ConfigDict, folder: Path, seed: int) -> RewardConfig:
    """The config of the training, from the first labels of the dataset unless others are named."""
    names = PairsDataset.open(folder).preference_names()
    return RewardConfig(
        seed=seed,
        dataset_dir=str(folder),
        annotator=settings.annotator or names[0],
        batch_size=settings.batch_size,
        network=RewardNetworkSizes(message=settings.message, dtype=settings.dtype),
        optimizer=Optimizer(learning_rate=settings.learning_rate),
    )


def straightforward(task: RewardTask) -> Callable[..., Any]:
    """A jitted step (params, opt_state, messages, targets, weights) -> (params, opt_state, loss)
    that encodes all messages.
    """
    network = task.network
    optimizer = task.optimizer

    def loss(params: Any, messages: jax.Array, targets: jax.Array, weights: jax.Array) -> jax.Array:
        rewards = network.reward(params, {"message": messages.reshape(-1, 256)})
        rewards = jnp.mean(rewards.reshape(messages.shape[:3]), axis=-1)
        return jnp.sum(preference.pair_loss(rewards, targets) * weights) / jnp.sum(weights)

    @jax.jit
    def step(params: Any, opt_state: Any, *batch: jax.Array) -> tuple[Any, Any, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(params, *batch)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return step


class _Sides:
    """Both ways to train, on the same sequence of batches."""

    def __init__(self, training: RewardConfig, data: RewardData, parallel: DataParallel) -> None:
        self.task = RewardTask(training, data, parallel)
        self.trainer = OfflineTrainer(self.task, training)
        self.step = straightforward(self.task)
        self.start = self.task.init_state()
        # Full batches only, so that every step is the same work.
        self.batches = self.task.plan.order(0)[: data.train.size // self.task.plan.batch_size]

    def _pairs(self, first: int, steps: int) -> np.ndarray:
        return self.batches[np.arange(first, first + steps) % len(self.batches)]

    def fast(self, state: Any, first: int, steps: int) -> Any:
        """Takes `steps` steps from batch `first` in chunks; the host makes batches while the device
        works, as in a training.
        """
        plan = self.task.plan
        for done in range(0, steps, plan.chunk_steps):
            pairs = self._pairs(first + done, min(plan.chunk_steps, steps - done))
            weights = self.task.data.targets.weights[pairs][:, None]
            state, _ = self.trainer.train_chunk(state, plan.make(pairs, weights))
        return jax.block_until_ready(state)

    def plain(self, state: tuple[Any, Any], first: int, steps: int) -> tuple[Any, Any]:
        """Takes `steps` steps of the baseline from batch `first`, one a call."""
        data = self.task.data
        params, opt_state = state
        for pairs in self._pairs(first, steps):
            messages = data.dataset.data["message"][pairs]
            batch = (messages, data.targets.targets[pairs], data.targets.weights[pairs])
            params, opt_state, _ = self.step(params, opt_state, *batch)
        return jax.block_until_ready((params, opt_state))

    def fresh(self) -> tuple[Any, tuple[Any, Any]]:
        """The first states of both sides on the devices."""
        replicate = self.trainer.parallel.replicate
        plain = (replicate(self.start.params), replicate(self.start.opt_state))
        return self.trainer.place(self.start), plain


def run(config: ConfigDict) -> dict[str, Any]:
    settings = config.options
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(settings.dataset_dir or Path(temporary) / "games")
        if not settings.dataset_dir:
            random_games(folder, settings.num_pairs, config.seed)
        training = trainer_config(settings, folder, config.seed)
        data = reward_data.load(training)
        return _measure(config, _Sides(training, data, DataParallel(jax.local_devices())))


def _measure(config: ConfigDict, sides: _Sides) -> dict[str, Any]:
    settings = config.options
    data = sides.task.data
    size = settings.batch_size
    state, plain = sides.fresh()
    # Compiles both.
    state = sides.fast(state, 0, settings.steps)
    plain = sides.plain(plain, 0, 1)

    values = []
    baseline = []
    for _ in range(config.repeats):
        start = time.perf_counter()
        # By turns, so that other load disturbs both alike.
        plain = sides.plain(plain, 0, settings.baseline_steps)
        middle = time.perf_counter()
        state = sides.fast(state, 0, settings.steps)
        end = time.perf_counter()
        baseline.append(settings.baseline_steps * size / (middle - start))
        values.append(settings.steps * size / (end - middle))

    # The messages of each batch: the fewer are distinct, the more the fast side saves.
    messages = data.ids[sides.batches].reshape(len(sides.batches), -1)
    share = float(np.mean([np.unique(row).size for row in messages]) / messages.shape[1])
    return result(
        config,
        "pairs/s",
        values,
        "jitted step that encodes every message of every pair",
        baseline,
        distinct_share=share,
        # Of 1 / share, which encoding distinct messages alone can gain, four fifths.
        target_ratio=min(10.0, 0.8 / share),
        distinct_messages=len(data.messages),
        longest_message=data.max_length,
        devices=sides.trainer.parallel.device_count,
    )
