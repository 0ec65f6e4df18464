"""Trains a reward model from the preferences of a dataset."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.devices.sharding import training_devices
from motif_jax.core.training import offline_run, records
from motif_jax.core.training.offline_run import OfflineRun
from motif_jax.motif.pairs import outcomes, targets, threshold
from motif_jax.motif.reward import reward_data
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.motif.reward.reward_model import architecture_of, read_run
from motif_jax.motif.reward.reward_task import RewardTask
from motif_jax.motif.reward.training_texts import FILE, write_training_texts
from motif_jax.schema import read_section

IDENTITY = (
    "stage seed annotator batch_size epochs least_steps train_fraction network optimizer labels ensemble early_stopping chunk_steps "
    "num_devices compat"
).split()

# Of train_agent's configs.
DEFAULT_QUANTILE = 0.5

# A batch of this size may be larger than the dataset: the rest of it is padding.
MOST_PADDED = 1 << 16


def check(given: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, given, IDENTITY)
    config = read_section(RewardConfig, given)
    offline_run.check(config, None)
    architecture = architecture_of(config)
    problem = architecture.problem()
    checks.require(problem is None, "network", architecture.fields, f"a model: {problem}")
    checks.existing_folder(config, "dataset_dir")
    dataset = reward_data.open_dataset(config, architecture)
    most = max(dataset.num_pairs, MOST_PADDED)
    allowed = f"at most {most:,}: a batch has no use for more than the {dataset.num_pairs:,} pairs of {config.dataset_dir}"
    checks.require_key(config, "batch_size", config.batch_size <= most, allowed)
    names, weights = checks.listed(config.annotator or ""), config.labels.annotator_weights
    if weights.strip():
        try:
            numbers = [float(weight) for weight in weights.split(",")]
        except ValueError:
            numbers = []
        good = len(numbers) == len(names) and all(0 < number < math.inf for number in numbers)
        allowed = f"{len(names)} positive numbers, one an annotator"
        checks.require_key(config, "labels.annotator_weights", good, allowed)
    if config.labels.soft or config.labels.confidence == "probability":
        for name in names:
            targets.read_probabilities(dataset, name)


def run(given: ConfigDict, workdir: Path) -> int:
    config = read_section(RewardConfig, given)
    parallel = DataParallel(training_devices(config.num_devices))

    def build(stopped: Callable[[], bool]) -> OfflineRun:
        del stopped
        data = reward_data.load(config)
        task = RewardTask(config, data, parallel)
        records.refuse_other_data(workdir, task.digests, task.source)
        about = ""
        if task.network.architecture.message_only:
            write_training_texts(workdir, data.messages[data.counts > 0])
            counts = outcomes.count_outcomes(data.ids, data.targets.labels, len(data.messages))
            about = outcomes.describe(counts, data.messages) + "\n"
        about += (
            f"{data.train.size:,} training and {data.validation.size:,} validation pairs, {len(data.messages):,} "
            f"distinct messages of up to {data.max_length} bytes; at most {task.plan.bucket:,} distinct ones of "
            f"{2 * config.batch_size * data.dataset.length:,} in a batch"
        )
        if task.plan.passes > 1:
            about += f"; {task.plan.passes:,} passes over the pairs an epoch, {task.steps:,} steps in all"
        return OfflineRun(task, about, described)

    def described() -> str:
        return threshold.describe(read_run(workdir).statistics, DEFAULT_QUANTILE).rstrip("\n")

    return offline_run.run(config, given.to_dict(), workdir, IDENTITY, (FILE,), build)
