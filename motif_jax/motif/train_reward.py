"""Trains a reward model from the preferences of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.devices.sharding import training_devices
from motif_jax.core.training import trainer
from motif_jax.core.training.trainer import OfflineRun
from motif_jax.motif.pairs import outcomes, threshold
from motif_jax.motif.reward import reward_data
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.motif.reward.reward_model import architecture_of, read_run
from motif_jax.motif.reward.reward_task import RewardTask
from motif_jax.schema import read_section

# Keys that a resumed training must not change.
IDENTITY = (
    "stage",
    "seed",
    "annotator",
    "batch_size",
    "epochs",
    "least_steps",
    "train_fraction",
    "network",
    "optimizer",
    "labels",
    "ensemble",
    "early_stopping",
    "chunk_steps",
    "num_devices",
    "compat",
)

# `reward.quantile` of train_agent's configs, for which the end of the training prints what an agent
# would be paid.
DEFAULT_QUANTILE = 0.5


def check(config_tree: ConfigDict, workdir: Path) -> None:
    """Raises UserError where the config, the dataset or its labels cannot be used; trains
    nothing.
    """
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    config = read_section(RewardConfig, config_tree)
    trainer.check(config, None)
    architecture = architecture_of(config)
    problem = architecture.problem()
    checks.require(problem is None, "network", architecture.fields, f"a model: {problem}")
    # Pairs of a folder that is named twice would be in both parts.
    checks.existing_folders(config, "dataset_dir")
    checks.require_key(config, "annotator", bool(config.annotator), "names of label files")
    dataset = reward_data.open_dataset(config, architecture)
    reward_data.labelled_parts(config, dataset)


def run(config_tree: ConfigDict, workdir: Path) -> int:
    """Trains to the end, or resumes where an earlier command was stopped; returns the exit
    status.
    """
    config = read_section(RewardConfig, config_tree)
    parallel = DataParallel(training_devices(config.num_devices))

    def build(stopped: Callable[[], bool]) -> OfflineRun:
        del stopped
        # Called while the folder is locked, before anything is trained.
        data = reward_data.load(config)
        task = RewardTask(config, data, parallel)
        lines = []
        # A reward of the text alone has values of texts, to compare with the labels' wins.
        if task.network.architecture.message_only:
            counts = outcomes.count_outcomes(data.ids, data.targets.labels, len(data.messages))
            lines.append(outcomes.describe(counts, data.messages))
        sizes = (
            f"{data.train.size:,} training and {data.validation.size:,} validation pairs, {len(data.messages):,} "
            f"distinct messages of up to {data.max_length} bytes; at most {task.plan.bucket:,} distinct ones of "
            f"{2 * config.batch_size * data.dataset.length:,} in a batch"
        )
        if task.plan.passes > 1:
            sizes += f"; {task.plan.passes:,} passes over the pairs an epoch, {task.steps:,} steps in all"
        lines.append(sizes)
        return OfflineRun(task, "\n".join(lines), advice)

    def advice() -> str:
        """What an agent would be paid by the trained reward, printed at the end."""
        return threshold.describe(read_run(workdir).statistics, DEFAULT_QUANTILE).rstrip("\n")

    return trainer.run(config, config_tree.to_dict(), workdir, IDENTITY, build)
