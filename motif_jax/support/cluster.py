"""Finds which host of a run this process is, from `config.hosts` or Slurm's environment, without jax."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support.errors import UserError

SLURM = "slurm"
# What jax reads to find the first host of a step.
_SLURM_NAMES = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")


@dataclasses.dataclass(frozen=True)
class HostPosition:
    """This process's place among the hosts of a run.

    Attributes:
      coordinator: 'HOST:PORT' at which the first host listens, or 'slurm'; None for a run of one host.
    """

    coordinator: str | None
    index: int
    count: int


def place(config: ConfigDict, environment: Mapping[str, str] | None = None) -> HostPosition:
    """This process's host, by `config.hosts` or, with coordinator 'slurm', by Slurm. Raises UserError: values do not fit."""
    given, environment = config.hosts, os.environ if environment is None else environment
    if given.coordinator in (None, SLURM):
        why = "Slurm says it" if given.coordinator else "there is no config.hosts.coordinator"
        for key in ("count", "index"):
            checks.require(given[key] is None, f"hosts.{key}", given[key], f"left out: {why}")
        return _of_slurm(environment) if given.coordinator else HostPosition(None, 0, 1)
    name, _, port = given.coordinator.rpartition(":")
    good = bool(name) and checks.is_natural(port) and 0 < int(port) < 65_536
    checks.require(good, "hosts.coordinator", given.coordinator, "HOST:PORT of the first host, or 'slurm'")
    checks.require(given.count is not None, "hosts.count", None, "the number of hosts")
    in_range = given.index is not None and 0 <= given.index < given.count
    allowed = f"this host's number, 0 to {given.count - 1}"
    checks.require(in_range, "hosts.index", given.index, allowed)
    return HostPosition(given.coordinator if given.count > 1 else None, given.index, given.count)


def _of_slurm(environment: Mapping[str, str]) -> HostPosition:
    if missing := [name for name in _SLURM_NAMES if not environment.get(name)]:
        raise UserError(
            f"config.hosts.coordinator='slurm' needs {', '.join(missing)}: start the program with srun"
        )
    count = int(environment["SLURM_NTASKS"])
    return HostPosition(SLURM if count > 1 else None, int(environment["SLURM_PROCID"]), count)
