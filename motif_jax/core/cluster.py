"""The hosts of a run, as `config.hosts` or Slurm's environment names them, and which of them this
process is; without jax.
"""

from __future__ import annotations

import dataclasses
import os

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.schema import non_negative, plain_key, positive, section_class

SLURM = "slurm"
# What jax reads to find the first host of a step.
_SLURM_NAMES = (
    "SLURM_JOB_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
)


@dataclasses.dataclass(frozen=True)
class HostPosition:
    """This process's position among the hosts of a run.

    Attributes:
      coordinator: 'HOST:PORT' at which the first host listens, or 'slurm'; None for a run of one
          host.
      index: number of this host, from 0.
      count: number of hosts.
    """

    coordinator: str | None
    index: int
    count: int


@section_class
class ClusterHosts:
    """The hosts of a run of several."""

    coordinator: str | None = plain_key(
        None, "'HOST:PORT' of the first of several hosts, or 'slurm' under srun"
    )
    count: int | None = positive(None, "number of hosts, one process each")
    index: int | None = non_negative(None, "index of this host")
    heartbeat_timeout_seconds: float = plain_key(
        100.0, "the other hosts end when one is silent for this long", minimum=1
    )

    def position(self) -> HostPosition:
        """The position of this process, by the keys or, with coordinator 'slurm', by Slurm's
        environment.

        Raises UserError: the keys do not fit together, or Slurm's variables are missing.
        """
        if self.coordinator is None or self.coordinator == SLURM:
            reason = "Slurm says it" if self.coordinator else "there is no config.hosts.coordinator"
            for key, value in (("count", self.count), ("index", self.index)):
                checks.require(value is None, f"hosts.{key}", value, f"left out: {reason}")
            return _slurm_position() if self.coordinator else HostPosition(None, 0, 1)
        host, _, port = self.coordinator.rpartition(":")
        is_address = bool(host) and checks.is_natural(port) and 0 < int(port) < 65_536
        checks.require(
            is_address,
            "hosts.coordinator",
            self.coordinator,
            "HOST:PORT of the first host, or 'slurm'",
        )
        checks.require(self.count is not None, "hosts.count", None, "the number of hosts")
        count = self.count or 0
        is_valid = self.index is not None and 0 <= self.index < count
        checks.require(is_valid, "hosts.index", self.index, f"this host's number, 0 to {count - 1}")
        return HostPosition(self.coordinator if count > 1 else None, self.index or 0, count)


def _slurm_position() -> HostPosition:
    missing = [name for name in _SLURM_NAMES if not os.environ.get(name)]
    if missing:
        raise UserError(
            f"config.hosts.coordinator='slurm' needs {', '.join(missing)}: start the program with srun"
        )
    count = int(os.environ["SLURM_NTASKS"])
    return HostPosition(SLURM if count > 1 else None, int(os.environ["SLURM_PROCID"]), count)
