"""Runs an offline training from its config to its folder, for the stages of all tasks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from motif_jax.core import metrics
from motif_jax.core.devices import precision, sharding
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.interruption import EXIT_CODE, Interruption
from motif_jax.core.sections import Sharding
from motif_jax.core.training import run_files, schedules
from motif_jax.core.training.config import DatasetConfig
from motif_jax.core.training.task import Task
from motif_jax.core.training.trainer import OfflineTrainer, TrainerSettings


@dataclasses.dataclass(frozen=True)
class OfflineRun:
    """A task, and what its stage prints and writes.

    Attributes:
      task: the task to train.
      about: lines to log before the first step, about the model and its data.
      finish: writes the result after the last step and returns its path, or a line to log. None:
        the checkpoints are the result.
    """

    task: Task
    about: str
    finish: Callable[[], str | Path] | None = None


def check(config: DatasetConfig, steps: int | None) -> None:
    """Checks the keys that all offline trainings have. Raises UserError.

    Args:
      steps: number of optimiser steps; None where the data decide it.
    """
    if steps is not None:
        schedules.check_warmup(config.optimizer, steps)
    precision.set_matmul_precision(config.matmul_precision)
    sharding.check_config(config, jax.local_device_count(), jax.process_count())
    if config.wandb.enabled:
        metrics.import_wandb()


def mesh_sizes(config: DatasetConfig) -> dict[str, int]:
    """Devices along each axis of the mesh of a training."""
    model_axes = dataclasses.asdict(config.sharding or Sharding())
    devices = len(sharding.training_devices(config.num_devices))
    return {"data": devices // math.prod(model_axes.values()), **model_axes}


def devices_of(config: DatasetConfig) -> DataParallel:
    """The devices that train, with split parameters where `config.sharding` asks for it."""
    devices = sharding.training_devices(config.num_devices)
    sizes = mesh_sizes(config)
    # Nothing is split: each device holds the whole state.
    if sizes["data"] == len(devices):
        return DataParallel(devices)
    return sharding.Sharded(sizes, devices)


def numbers_in(tree: Any) -> int:
    """Number of elements of all arrays or shapes in a tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def run(
    config: DatasetConfig,
    plain_config: Mapping[str, Any],
    workdir: Path,
    identity: Iterable[str],
    files: Iterable[str],
    build: Callable[[Callable[[], bool]], OfflineRun | None],
    free: Iterable[str] = (),
) -> int:
    """Trains, or resumes, and writes the result; returns 0, or 75 after a request to stop.

    Args:
      config: the config as the trainer reads it.
      plain_config: the config as its file and flags set it, for the run folder.
      identity: keys with which a run continues, as of `run_files.prepared`; `free` and `files` are
          its arguments, too.
      build: makes missing files in `workdir` and the run, or returns None after a request to stop,
          which its argument tells.
    """
    hosts = Hosts()
    offline_run: OfflineRun | None = None

    def make() -> None:
        nonlocal offline_run
        offline_run = build(lambda: stop.requested)
        if offline_run is not None:
            run_files.refuse_other_data(workdir, offline_run.task.digests, offline_run.task.source)

    def make_on_first_host() -> None:
        with run_files.prepared(workdir, plain_config, identity, files, free):
            make()

    with hosts.locked(workdir):
        # Preparations may take minutes, as tokens of a large file do: a request stops them, too.
        # The trainer has an `Interruption` of its own.
        with Interruption() as stop:
            if hosts.count > 1:
                hosts.require_alike(plain_config)
            # The first host makes the files, then the others read them.
            hosts.on_first(make_on_first_host)
            hosts.require_shared(workdir)
            if hosts.any(stop.requested):
                return EXIT_CODE
            if not hosts.is_first:
                make()
            # All hosts take part in `any`, so it comes before the test of this host's own run.
            if hosts.any(offline_run is None or stop.requested) or offline_run is None:
                return EXIT_CODE
        task = offline_run.task
        devices = task.parallel.devices
        hosts.say(f"{offline_run.about}; {len(devices)} {devices[0].device_kind} device(s)")
        settings = TrainerSettings.of(config, plain_config)
        if not OfflineTrainer(task, task.parallel, settings).run(workdir):
            return EXIT_CODE
        # Here every step was taken. A stop or a kill in `finish` costs only it: the same command
        # writes the result again.
        result = offline_run.finish() if offline_run.finish is not None else None
        if result:
            hosts.say(f"written: {result}" if isinstance(result, Path) else result)
        return 0
