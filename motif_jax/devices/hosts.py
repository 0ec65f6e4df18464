"""Several hosts in one run: how they find each other, what they agree on, and how they part.

Every host is one process with its own actors; the global batch is split over the hosts and then over their devices.
All hosts take the same decisions after the same update, because they take them from numbers that they have in common.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import socket
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from motif_jax.devices import rendezvous
from motif_jax.devices.parallel import AXIS, DataParallel
from motif_jax.support import config as checks
from motif_jax.support import interruption, run_folder
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_text, no_room

SLURM = "slurm"
_SLURM_NAMES = ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NTASKS")
_SLURM_NODES = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
# Where Slurm's jobs meet unless the config names a port: one of these, by the job's number.
PORTS = range(61_440, 65_536)
_SMALLEST_MESSAGE = 256
_LAST_WORDS_SECONDS = 5.0
# So long a network file system may take to show one host what another has written.
_FOLDER_SECONDS = 20.0
# All hosts are there when jax connects them.
_JOIN_SECONDS = 120
# What jax needs from the moment when a host has been silent for its timeout until the others have ended (measured: up to
# 1.2), which the config's timeout includes.
_ENDING_SECONDS = 2
_SHORTEST_HEARTBEAT = 5
# What may differ between the configs of one run's hosts.
_OWN_KEYS = ("index", "count")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where this process stands among the hosts of a run.

    Attributes:
      coordinator: 'HOST:PORT' at which the first host listens, None for a run of one host.
      index: number of this host; the first one writes the metrics.
      count: hosts of the run.
    """

    coordinator: str | None
    index: int
    count: int


def place(config: ConfigDict, environment: Mapping[str, str] | None = None) -> Place:
    """Reads from `config.hosts`, or from Slurm's environment where it says so, which host this is.

    Args:
      config: with `hosts.coordinator` None, 'HOST:PORT' (then `hosts.count` and `hosts.index` are needed) or
        'slurm', `hosts.count` and `hosts.index`.
      environment: in place of the process's own.

    Raises:
      UserError: values that do not go together, or Slurm's variables are not there.
    """
    hosts, environment = config.hosts, os.environ if environment is None else environment
    for key in ("hosts.heartbeat_timeout_seconds", "hosts.connect_timeout_seconds"):
        checks.positive(config, key)
    timeout = hosts.heartbeat_timeout_seconds
    allowed = f"at least {_SHORTEST_HEARTBEAT}"
    checks.require(timeout >= _SHORTEST_HEARTBEAT, "hosts.heartbeat_timeout_seconds", timeout, allowed)
    if hosts.coordinator is None or hosts.coordinator == SLURM:
        for key in ("hosts.count", "hosts.index"):
            value = checks.dotted(config, key)
            given = (
                "left out: Slurm says it"
                if hosts.coordinator
                else "left out without config.hosts.coordinator"
            )
            checks.require(value is None, key, value, given)
        return Place(None, 0, 1) if hosts.coordinator is None else _slurm_place(environment)
    _, colon, port = hosts.coordinator.rpartition(":")
    good = bool(colon) and checks.is_natural(port) and 0 < int(port) < 65_536
    checks.require(good, "hosts.coordinator", hosts.coordinator, "HOST:PORT of the first host, or 'slurm'")
    checks.positive(config, "hosts.count")
    index, count = hosts.index, hosts.count
    in_range = index is not None and 0 <= index < count
    checks.require(in_range, "hosts.index", index, f"this host's number, 0 to {count - 1}")
    return Place(hosts.coordinator if count > 1 else None, index, count)


def _slurm_place(environment: Mapping[str, str]) -> Place:
    missing = [name for name in _SLURM_NAMES if not environment.get(name)]
    nodes = next((environment[name] for name in _SLURM_NODES if environment.get(name)), None)
    if missing or nodes is None:
        names = ", ".join([*missing, *([] if nodes else [_SLURM_NODES[0]])])
        raise UserError(f"config.hosts.coordinator='slurm' needs {names}: start the program with srun")
    job, index, count = (int(environment[name]) for name in _SLURM_NAMES)
    port = PORTS[job % len(PORTS)]
    return Place(f"{first_node(nodes)}:{port}" if count > 1 else None, index, count)


def first_node(nodes: str) -> str:
    """The first name of a list as Slurm writes it: 'gpu[003-010,12],cpu1' -> 'gpu003'."""
    name = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    assert name is not None
    return re.sub(r"\[([^,\]-]*)[^\]]*\]", r"\1", name.group())


def connect(config: ConfigDict) -> None:
    """Joins the run's hosts; does nothing in a run of one. To be called before jax's first computation.

    Args:
      config: with the values of `place` in `hosts`.

    Raises:
      UserError: the hosts do not find each other in time, or were not told the same.
    """
    here = config.hosts
    if here.count == 1 or jax.distributed.is_initialized():
        return
    plain = run_folder.as_plain(config)
    for key in _OWN_KEYS:
        plain["hosts"].pop(key)
    rendezvous.meet(here.coordinator, here.index, here.count, plain, here.connect_timeout_seconds)
    # It would take over SIGTERM, which asks for a checkpoint here.
    jax.config.update("jax_enable_preemption_service", False)
    timeout = int(here.heartbeat_timeout_seconds)
    jax.distributed.initialize(
        here.coordinator,
        here.count,
        here.index,
        cluster_detection_method="deactivate",
        initialization_timeout=_JOIN_SECONDS,
        heartbeat_timeout_seconds=timeout - _ENDING_SECONDS,
        # Where all hosts are processes of one machine nobody else is listened to.
        coordinator_bind_address=here.coordinator if rendezvous.loopback(here.coordinator) else None,
        # A host that is done waits so long for the others before it leaves.
        shutdown_timeout_seconds=timeout,
    )
    Hosts().require_equal(jax.local_device_count(), "the hosts of a run need equally many devices")


class Hosts:
    """The hosts of a run. What all of them call, they call in the same order, each from its main thread.

    Attributes:
      index: number of this host.
      count: hosts of the run.
    """

    def __init__(self) -> None:
        self.index, self.count = jax.process_index(), jax.process_count()

    @property
    def is_first(self) -> bool:
        """Whether this host writes what the run writes once."""
        return self.index == 0

    def gather(self, value: Any) -> list[Any]:
        """Every host hands in a JSON-able value and gets those of all, in their order."""
        if self.count == 1:
            return [json.loads(json.dumps(value))]
        data = np.frombuffer(zlib.compress(json.dumps(value).encode()), np.uint8)
        sizes = multihost_utils.process_allgather(np.int32(len(data))).tolist()
        # Sizes are rounded up, so that few programs are compiled.
        room = max(_SMALLEST_MESSAGE, 1 << (max(sizes) - 1).bit_length())
        rows = multihost_utils.process_allgather(np.pad(data, (0, room - len(data))))
        return [
            json.loads(zlib.decompress(row[:size].tobytes())) for row, size in zip(rows, sizes, strict=True)
        ]

    def broadcast(self, value: np.ndarray) -> np.ndarray:
        """The first host's array, on all; every host hands in one of the same shape and type."""
        if self.count == 1:
            return value
        return np.asarray(multihost_utils.broadcast_one_to_all(value, is_source=self.is_first))

    def on_first(self, work: Callable[[], Any]) -> None:
        """Does `work` on the first host, while the others wait.

        Raises:
          UserError: on all hosts, what `work` raised there.
        """
        message = None
        if self.is_first:
            try:
                work()
            except UserError as error:
                message = str(error)
        message = self.gather(message)[0]
        if message is not None:
            raise UserError(message)

    def require_equal(self, value: Any, what: str) -> None:
        """Raises UserError, with `what` in it, unless all hosts hand in the same value."""
        values = self.gather(value)
        for number, other in enumerate(values):
            if other != values[0]:
                raise UserError(f"{what}: host 0 sees {values[0]}, host {number} sees {other}")

    def require_shared(self, folder: Path, seconds: float = _FOLDER_SECONDS) -> None:
        """Returns when every host has read in `folder`, the run's, what the first one wrote there.

        Args:
          folder: as this host calls it.
          seconds: so long a host looks for what was written.

        Raises:
          UserError: on all hosts; names those that see another folder.
        """
        if self.count == 1:
            return
        # A name of its own: no host has looked for it before and remembers that it was not there. It ends like those
        # that `run_folder.prepare` removes, should this process be killed.
        name = self.gather(f".hosts-{secrets.token_hex(8)}.tmp")[0]
        value, path = secrets.token_hex(8), folder / name
        if self.is_first:
            atomic_write_text(path, value)
        value = self.gather(value)[0]
        here = {
            "seen": _reads(path, value, seconds),
            "place": f"{folder.absolute()} on {socket.gethostname()}",
        }
        everyone = self.gather(here)
        if self.is_first:
            path.unlink()
        places = [f"host {number} ({host['place']})" for number, host in enumerate(everyone)]
        others = [place for place, host in zip(places, everyone, strict=True) if not host["seen"]]
        if others:
            do = "does" if len(others) == 1 else "do"
            raise UserError(
                f"--workdir is not a folder that all hosts share: {' and '.join(others)} {do} not see what {places[0]} "
                "writes; it has to lie on a file system that all see"
            )


def _reads(path: Path, value: str, seconds: float) -> bool:
    """Whether `path` holds `value` within so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        for folder in (path.parent.parent, path.parent):
            with contextlib.suppress(OSError):
                os.listdir(folder)  # network file systems look anew at a folder that is opened
        with contextlib.suppress(OSError):
            if path.read_text(encoding="utf-8") == value:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)


class Ballot(NamedTuple):
    """What a host puts in with an update, and, summed over the hosts, what they go by after it.

    Attributes:
      steps: environment steps in its part of the batch.
      stop: whether it was asked to stop.
      save: whether it is time to save.
      log: whether it is time to write metrics.
    """

    steps: int
    stop: int
    save: int
    log: int


class Agreement:
    """Sums the hosts' ballots on the learner's devices, right behind an update, so that nobody waits for it.

    Args:
      parallel: the learner's devices.
    """

    def __init__(self, parallel: DataParallel) -> None:
        self._parallel = parallel
        self._alone = parallel.global_device_count == parallel.device_count
        self._sum = parallel.wrap(lambda _, votes: jax.lax.psum(jnp.sum(votes, axis=0), AXIS))
        self._nothing = parallel.replicate(np.zeros((), np.int32))
        self._result: Ballot | jax.Array | None = None

    def vote(self, ballot: Ballot) -> None:
        """Hands in this host's ballot; all hosts do so after they have started the same update."""
        if self._alone:
            self._result = ballot
            return
        votes = np.zeros((self._parallel.device_count, len(ballot)), np.int32)
        votes[0] = ballot
        self._result = self._sum(self._nothing, self._parallel.put_batch(votes, 0))

    def result(self) -> Ballot | None:
        """The sum of the newest ballots, None if it was asked for already; waits for the update before it."""
        result, self._result = self._result, None
        if result is None or isinstance(result, Ballot):
            return result
        return Ballot(*np.asarray(result).tolist())


@contextlib.contextmanager
def leave_at_once_on_error() -> Iterator[None]:
    """In a run of several hosts, ends the process when the block raises, with the exit code of `motif_jax.launch`.

    An orderly end would wait for the other hosts, which wait for this one. They miss its heartbeats and end too.
    """
    try:
        yield
    except BaseException as error:
        if not jax.distributed.is_initialized():
            raise
        code, line = 1, str(error) if isinstance(error, UserError) else no_room(error, ".")
        if line:
            print(f"error: {line}", file=sys.stderr)
            code = 2
        elif isinstance(error, KeyboardInterrupt):
            print(interruption.INTERRUPTED, file=sys.stderr)
            code = interruption.INTERRUPTED_CODE
        else:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        if jax.process_index() == 0:
            # Its end cuts the others off at once: those that met the same error have a moment to say so.
            time.sleep(_LAST_WORDS_SECONDS)
        os._exit(code)
