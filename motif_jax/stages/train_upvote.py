"""Trains a model that says whether a comment will be liked, for the reward `upvote_model` of the task reddit."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support import metrics, run_folder
from motif_jax.support.interruption import EXIT_CODE, Interruption
from motif_jax.support.locks import FolderLock

# What decides the course of a training: a run continues only with the same values.
IDENTITY = (
    "stage seed reddit cutoff held_out_share network vocab_size max_len freeze batch_size accumulate max_steps evaluate_every "
    "evaluation_batches chunk_steps optimizer dropout dtype early_stopping num_devices"
).split()


def check(config: ConfigDict, workdir: Path | None) -> None:
    """Raises UserError for bad values, comments or models that are not there, or a folder of another run."""
    import jax

    from motif_jax.algorithms import schedules
    from motif_jax.devices import precision
    from motif_jax.envs.reddit.task import RECORDED
    from motif_jax.language import byte_pairs
    from motif_jax.language.text import fetch
    from motif_jax.language.tokens import Tokenizer
    from motif_jax.trainers import upvote_run

    if workdir is not None:
        run_folder.check_identity(workdir, config, IDENTITY)
    schedules.check_warmup(config, config.max_steps)
    precision.set_matmul_precision(config)
    devices = config.num_devices or jax.local_device_count()
    parts = devices * config.accumulate
    checks.require(
        devices <= jax.local_device_count(), "num_devices", devices, f"at most {jax.local_device_count()}"
    )
    checks.require(
        config.batch_size % parts == 0,
        "batch_size",
        config.batch_size,
        f"a multiple of {parts}, devices times config.accumulate",
    )
    if config.wandb.enabled:
        metrics.import_wandb()
    upvote_run.task_of(config).check(RECORDED, RECORDED)
    tokenizer = None
    if config.network.checkpoint:
        tokenizer = Tokenizer.read(fetch(config.network.checkpoint, "network.checkpoint"))
    else:
        least = byte_pairs.smallest("roberta")
        size = config.vocab_size
        checks.require(size >= least, "vocab_size", size, f"at least {least}: all bytes and special tokens")
    upvote_run.settings_of(config, tokenizer)


def run(config: ConfigDict, workdir: Path) -> int:
    """Trains, or continues where the folder stands, and writes the model; returns 0, or 75 after a request to stop."""
    import jax

    from motif_jax.devices.parallel import DataParallel
    from motif_jax.trainers import records, upvote_run
    from motif_jax.trainers.trainer import OfflineTrainer, TrainerSettings

    with FolderLock(workdir):
        parallel = DataParallel(jax.local_devices()[: config.num_devices])
        with (
            records.prepared(workdir, config, IDENTITY, upvote_run.made_files(config)),
            Interruption() as stop,
        ):
            found = upvote_run.build(config, workdir, parallel, lambda: stop.requested)
        if found is None or stop.requested:
            return EXIT_CODE
        task = found[0]
        records.refuse_other_data(workdir, task.digests, task.source)
        count = sum(leaf.size for leaf in jax.tree.leaves(task.learned))
        print(
            f"{count:,} numbers to learn; {len(parallel.devices)} {jax.devices()[0].device_kind} device(s)",
            flush=True,
        )
        if not OfflineTrainer(task, parallel, TrainerSettings.of(config, keep=config.keep_checkpoints)).run(
            workdir
        ):
            return EXIT_CODE
        print(f"written: {upvote_run.export(*found, workdir)}")
        return 0
