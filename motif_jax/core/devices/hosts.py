"""Several hosts in one run, each a process with its own devices (`jax.distributed`): how they
connect, agree and end.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import socket
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from motif_jax.core import interruption, run_folder
from motif_jax.core.cluster import SLURM, ClusterHosts, HostPosition
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text, system_error
from motif_jax.core.locks import FolderLock

Value = TypeVar("Value")
# Smallest padded message in bytes; larger ones are padded to its doubles, so that few programs are
# compiled.
_SMALLEST_MESSAGE = 256
# The hosts wait so long for each other at the start; Slurm starts all of a job's at once.
CONNECT_SECONDS = 300.0
# The first host waits after an error: its end cuts off the others, which report the error first.
_LAST_WORDS_SECONDS = 5.0
# longest time in which a network file system shows one host what another has written
_FOLDER_SECONDS = 20.0
_CLOSED = "closed by peer"  # in XLA's messages about a connection that another host closed
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@contextlib.contextmanager
def connected(hosts: ClusterHosts) -> Iterator[None]:
    """Joins the hosts of a run, before jax's first computation; does nothing in a run of one host.

    If the block raises, the process ends at once with the exit code of `motif_jax.launch`: an
    orderly end would deadlock with the other hosts. They miss its heartbeats and end, too.
    """
    position = hosts.position()
    if position.count == 1:
        yield
        return
    with leave_at_once_on_error(position.index):
        join(position, hosts)
        yield


def join(here: HostPosition, hosts: ClusterHosts) -> None:
    """Connects this process with the other hosts by `jax.distributed`; ends the process if they do
    not meet in time.
    """
    slurm = here.coordinator == SLURM
    seconds = CONNECT_SECONDS
    host, _, port = str(here.coordinator).rpartition(":")
    if here.index == 0 and not slurm:
        try:
            # jaxlib may crash at a port that is taken
            socket.create_server(("", int(port))).close()
        except OSError as error:
            raise UserError(
                f"config.hosts.coordinator={here.coordinator}: port {port} cannot be used here ({error.strerror}): choose another"
            ) from None
    meeting_point = "Slurm's first node" if slurm else here.coordinator
    timeout_message = (
        f"error: host {here.index}: the {here.count} hosts of the run did not all meet at {meeting_point} within {seconds:g} s: start all of "
        "them at about the same time, with the same config.hosts.count, and each with a config.hosts.index of its own"
    )

    # Ours comes first: after its own timeout jax aborts with a C++ trace.
    watch = threading.Timer(seconds, leave, (timeout_message, 2))
    watch.daemon = True
    watch.start()
    # jax would take over SIGTERM, which asks for a checkpoint here.
    jax.config.update("jax_enable_preemption_service", False)
    heartbeat = math.ceil(hosts.heartbeat_timeout_seconds)
    try:
        jax.distributed.initialize(
            None if slurm else here.coordinator,
            here.count,
            here.index,
            local_device_ids=[],  # all that the process sees
            cluster_detection_method="slurm" if slurm else "deactivate",
            initialization_timeout=math.ceil(seconds) + 60,
            heartbeat_timeout_seconds=heartbeat,
            # Listen to this machine alone if it runs all hosts.
            coordinator_bind_address=here.coordinator if host in _LOOPBACK else None,
            shutdown_timeout_seconds=heartbeat,  # how long a finished host waits for the others
        )
    finally:
        watch.cancel()


class Hosts:
    """The hosts of a run. Collective calls: every host makes them in the same order, from its main
    thread.
    """

    def __init__(self) -> None:
        self.index = jax.process_index()
        self.count = jax.process_count()

    @property
    def is_first(self) -> bool:
        """Whether this host writes what the run writes once."""
        return self.index == 0

    def say(self, line: str) -> None:
        """Prints `line` on the first host."""
        if self.is_first:
            print(line, flush=True)

    def gather(self, value: Any) -> list[Any]:
        """The JSON-able values of all hosts, by index."""
        if self.count == 1:
            # As several hosts would get it: tuples become lists.
            return [json.loads(json.dumps(value))]
        data = np.frombuffer(zlib.compress(json.dumps(value).encode()), np.uint8)
        # A collective call needs equal shapes on all hosts: first the lengths, then messages padded
        # to the longest.
        sizes = multihost_utils.process_allgather(np.int32(len(data))).tolist()
        next_power_of_two = 1 << (max(sizes) - 1).bit_length()
        padded_size = max(_SMALLEST_MESSAGE, next_power_of_two)
        rows = multihost_utils.process_allgather(np.pad(data, (0, padded_size - len(data))))
        messages = [row[:size].tobytes() for row, size in zip(rows, sizes, strict=True)]
        return [json.loads(zlib.decompress(message)) for message in messages]

    def sum(self, numbers: Sequence[int]) -> list[int]:
        """The sums of `numbers` (int32) over all hosts, number by number."""
        if self.count == 1:
            return list(numbers)
        return multihost_utils.process_allgather(np.array(numbers, np.int32)).sum(0).tolist()

    def any(self, value: bool) -> bool:
        """Whether `value` is true on any host."""
        return self.sum([int(value)])[0] > 0

    def on_first(self, work: Callable[[], Value]) -> Value:
        """Does `work` on the first host while the others wait; its JSON-able result, or its
        UserError, reaches all.
        """
        if self.count == 1:
            return work()
        message = None
        value = None
        if self.is_first:
            # Only what the user can put right is passed on. Any other error ends this process, and
            # the other hosts miss its heartbeats.
            try:
                value = work()
            except UserError as error:
                message = str(error)
        message, value = self.gather([message, value])[0]
        if message is not None:
            raise UserError(message)
        return value  # type: ignore[return-value]

    @contextlib.contextmanager
    def locked(self, folder: Path) -> Iterator[None]:
        """The first host holds the lock of a run folder while the block runs."""
        with contextlib.ExitStack() as stack:
            self.on_first(lambda: stack.enter_context(FolderLock(folder)))
            yield

    def require_equal(self, value: Any, message: str) -> None:
        """Raises UserError, which begins with `message`, unless all hosts pass the same value."""
        values = self.gather(value)
        for number, other in enumerate(values):
            if other != values[0]:
                raise UserError(f"{message}: host 0 sees {values[0]}, host {number} sees {other}")

    def require_alike(self, config: Mapping[str, Any]) -> None:
        """Raises UserError, on all hosts, unless they have equal configs and equally many
        devices.
        """
        plain = run_folder.as_plain(config)
        # The one value that differs from host to host.
        plain["hosts"].pop("index")
        configs = self.gather(plain)
        for number, other in enumerate(configs):
            places = ("on host 0", f"on host {number}")
            differing = run_folder.differences(configs[0], other, plain, places=places)
            if differing:
                raise UserError(f"the hosts of a run need the same config: {'; '.join(differing)}")
        self.require_equal(jax.local_device_count(), "the hosts of a run need equally many devices")

    def require_shared(self, folder: Path, seconds: float = _FOLDER_SECONDS) -> None:
        """Waits until every host sees in the run's `folder` a file of the first host; UserError
        after `seconds`.
        """
        if self.count == 1:
            return
        # A name that `run_folder.prepare` removes, should this process be killed.
        path = folder / self.gather(f".hosts-{secrets.token_hex(8)}.tmp")[0]
        self.on_first(lambda: atomic_write_text(path, ""))
        reports = self.gather(
            [f"{folder.absolute()} on {socket.gethostname()}", appears(path, seconds)]
        )
        # All have answered, so nobody looks for the file any more.
        if self.is_first:
            path.unlink()
        names = [f"host {number} ({location})" for number, (location, _) in enumerate(reports)]
        blind = [
            name for name, (_, is_visible) in zip(names, reports, strict=True) if not is_visible
        ]
        if blind:
            raise UserError(
                f"--workdir must lie on a file system that all hosts share: {' and '.join(blind)} cannot see what {names[0]} writes"
            )


def appears(path: Path, seconds: float) -> bool:
    """Waits until `path` exists, for `seconds` at most; returns whether it does."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            os.listdir(path.parent)  # makes a network file system refresh the folder
        if path.exists() or time.monotonic() > deadline:
            return path.exists()
        time.sleep(0.2)


@contextlib.contextmanager
def leave_at_once_on_error(index: int) -> Iterator[None]:
    """Ends the process of host `index` where the block raises, with the line and exit code of
    `motif_jax.launch`.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        problem = str(error) if isinstance(error, UserError) else system_error(error, ".")
        if problem:
            code = 2
            line = f"error: {' '.join(problem.split())}"
        elif isinstance(error, jax.errors.JaxRuntimeError) and _CLOSED in str(error):
            code = 1
            line = "error: another host of the run has ended: its log says why; the same command resumes the run"
        elif isinstance(error, KeyboardInterrupt):
            code = interruption.INTERRUPTED_CODE
            line = interruption.INTERRUPTED
        else:
            code = 1
            line = "".join(traceback.format_exception(error)).rstrip()
        leave(line, code, _LAST_WORDS_SECONDS if index == 0 else 0.0)


def leave(line: str, code: int, seconds: float = 0.0) -> None:
    """Ends the process without waiting for its threads."""
    print(line, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(seconds)
    os._exit(code)
