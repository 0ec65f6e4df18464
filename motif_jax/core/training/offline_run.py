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
from motif_jax.core.training import records, schedules
from motif_jax.core.training.config import DatasetConfig
from motif_jax.core.training.task import Task
from motif_jax.core.training.trainer import OfflineTrainer, TrainerSettings


@dataclasses.dataclass(frozen=True)
class OfflineRun:
    """A task, and what a stage adds to it."""

    task: Task
    about: str  # lines to log, on the trained model and its data
    # Writes the result and returns its path, or a line to log; None: checkpoints are the result.
    finish: Callable[[], str | Path] | None = None


def check(config: DatasetConfig, steps: int | None) -> None:
    """Checks what the configs of all offline trainings have; `steps` are the optimiser's, None: the data decide them."""
    if steps is not None:
        schedules.check_warmup(config.optimizer, steps)
    precision.set_matmul_precision(config.matmul_precision)
    sharding.check_config(config, jax.local_device_count(), jax.process_count())
    if config.wandb.enabled:
        metrics.import_wandb()


def mesh_sizes(config: DatasetConfig) -> dict[str, int]:
    """Devices along each axis of the mesh of a training."""
    split = dataclasses.asdict(config.sharding or Sharding())
    return {"data": len(sharding.training_devices(config.num_devices)) // math.prod(split.values()), **split}


def devices_of(config: DatasetConfig) -> DataParallel:
    """The devices that train, with split parameters where `config.sharding` asks for it."""
    devices, sizes = sharding.training_devices(config.num_devices), mesh_sizes(config)
    if sizes["data"] == len(devices):
        return DataParallel(devices)
    return sharding.Sharded(sizes, devices)


def numbers_in(tree: Any) -> int:
    """Number of elements of all arrays or shapes in a tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def run(
    config: DatasetConfig,
    given: Mapping[str, Any],
    workdir: Path,
    identity: Iterable[str],
    made: Iterable[str],
    build: Callable[[Callable[[], bool]], OfflineRun | None],
    free: Iterable[str] = (),
) -> int:
    """Trains, or resumes, and writes the result; returns 0, or 75 after a request to stop.

    `given` is the config as its file and flags gave it. `build` makes missing files in `workdir` and the run, or None after a
    request to stop; see `records.prepared` for the others.
    """
    hosts, built = Hosts(), list[OfflineRun | None]()

    def make() -> None:
        built.append(made_run := build(lambda: stop.requested))
        if made_run is not None:
            records.refuse_other_data(workdir, made_run.task.digests, made_run.task.source)

    def first() -> None:
        with records.prepared(workdir, given, identity, made, free):
            make()

    with hosts.locked(workdir):
        with Interruption() as stop:
            if hosts.count > 1:
                hosts.require_alike(given)
            # The first host makes the files, then the others read them.
            hosts.on_first(first)
            hosts.require_shared(workdir)
            if hosts.any(stop.requested):
                return EXIT_CODE
            if not hosts.is_first:
                make()
            found = built[0]
            if hosts.any(found is None or stop.requested) or found is None:
                return EXIT_CODE
        task, devices = found.task, found.task.parallel.devices
        hosts.say(f"{found.about}; {len(devices)} {devices[0].device_kind} device(s)")
        if not OfflineTrainer(task, task.parallel, TrainerSettings.of(config, given)).run(workdir):
            return EXIT_CODE
        if found.finish is not None and (line := found.finish()):
            hosts.say(f"written: {line}" if isinstance(line, Path) else line)
        return 0
