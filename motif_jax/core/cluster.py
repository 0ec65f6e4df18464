"""Finds which host of a run this process is, from `config.hosts` or Slurm's environment, without jax."""

from __future__ import annotations

import dataclasses
import os

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError

SLURM = "slurm"
# What jax reads to find the first host of a step.
_SLURM_NAMES = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")


@dataclasses.dataclass(frozen=True)
class HostPosition:
    """This process's place among the hosts of a run."""

    # 'HOST:PORT' at which the first host listens, or 'slurm'; None for a run of one host.
    coordinator: str | None
    index: int
    count: int


def place(coordinator: str | None, count: int | None, index: int | None) -> HostPosition:
    """This process's host, by the keys of `config.hosts` or, with coordinator 'slurm', by Slurm. Raises UserError: they do not fit."""
    if coordinator in (None, SLURM):
        why = "Slurm says it" if coordinator else "there is no config.hosts.coordinator"
        for key, value in (("count", count), ("index", index)):
            checks.require(value is None, f"hosts.{key}", value, f"left out: {why}")
        return _of_slurm() if coordinator else HostPosition(None, 0, 1)
    name, _, port = str(coordinator).rpartition(":")
    good = bool(name) and checks.is_natural(port) and 0 < int(port) < 65_536
    checks.require(good, "hosts.coordinator", coordinator, "HOST:PORT of the first host, or 'slurm'")
    checks.require(count is not None, "hosts.count", None, "the number of hosts")
    hosts, number = count or 0, -1 if index is None else index
    allowed = f"this host's number, 0 to {hosts - 1}"
    checks.require(0 <= number < hosts, "hosts.index", index, allowed)
    return HostPosition(coordinator if hosts > 1 else None, number, hosts)


def _of_slurm() -> HostPosition:
    if missing := [name for name in _SLURM_NAMES if not os.environ.get(name)]:
        raise UserError(
            f"config.hosts.coordinator='slurm' needs {', '.join(missing)}: start the program with srun"
        )
    count = int(os.environ["SLURM_NTASKS"])
    return HostPosition(SLURM if count > 1 else None, int(os.environ["SLURM_PROCID"]), count)
