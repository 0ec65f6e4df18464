"""Trains an agent in a run folder, on one host or on several."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.support import run_folder
from motif_jax.support.files import FolderLock
from motif_jax.support.interruption import EXIT_CODE, Interruption

# What makes a run the run it is; everything else may change when it is continued.
IDENTITY = (
    "stage",
    "seed",
    "environment",
    "network",
    "algorithm",
    "optimizer",
    "reward",
    "compat",
    "batch_size",
    "rollout",
)


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for a value that is not allowed, or a folder that holds another run.

    A run of several hosts is joined here: how many devices there are is only known then.
    """
    from motif_jax.algorithms import appo, schedules
    from motif_jax.devices import hosts
    from motif_jax.networks import agent
    from motif_jax.online import reward_choice, settings

    run_folder.check_identity(workdir, config, IDENTITY)
    settings.configure_jax(config)
    with hosts.leave_at_once_on_error():
        hosts.connect(config)
        config = reward_choice.apply(config, workdir)
        agent.check(config)
        schedules.check(config)
        settings.check(config)
        appo.check(settings.resolved(config))


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Trains; returns the exit code of a run that was asked to stop early."""
    from motif_jax.devices.hosts import Hosts, leave_at_once_on_error
    from motif_jax.online.training import Training

    with leave_at_once_on_error(), ExitStack() as stack:
        stop = stack.enter_context(Interruption())

        def take_folder() -> None:
            stack.enter_context(FolderLock(workdir))
            run_folder.prepare(workdir, config, IDENTITY)

        hosts = Hosts()
        hosts.on_first(take_folder)
        hosts.require_shared(workdir)
        finished = Training(config, workdir).run(stop)
    return None if finished else EXIT_CODE
