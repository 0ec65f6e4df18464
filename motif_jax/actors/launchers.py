"""Starts actor processes: forked from a server, or separately where forks do not help."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from motif_jax.actors import fork_server
from motif_jax.support import resources
from motif_jax.support.interruption import deaf_processes

METHODS = ("auto", "fork", "exec")
_PROBE_SECONDS = 30.0

# Forks twice; each child maps some memory and says where everything lies.
_PROBE = """
import mmap, os
for _ in range(2):
    pid = os.fork()
    if not pid:
        kept = mmap.mmap(-1, 1 << 22)
        os.write(1, ",".join(line.split("-")[0] for line in open("/proc/self/maps")).encode() + b"\\n")
        os._exit(0)
    os.waitpid(pid, 0)
"""


class Death(NamedTuple):
    """A process that has ended: which member it was, in which generation, and its exit code, negative for a signal."""

    member: int
    generation: int
    code: int


class ServerLostError(RuntimeError):
    """The fork server died, and with it all that it forked."""


class RefusedError(RuntimeError):
    """The fork server cannot fork; the message says why."""


class Launcher(Protocol):
    """Starts processes and reports their ends. `descriptor` becomes readable when one may have ended; -1: poll."""

    descriptor: int

    def start(self, orders: Mapping[str, Any]) -> int:
        """Starts a member and returns its process id.

        Args:
          orders: `member`, `generation`, `folder` and the descriptors `fork_server.PASSED`, -1 for those that it has not.

        Raises:
          ServerLostError: see there.
        """

    def deaths(self) -> list[Death]:
        """The processes that have ended since the last call. Raises ServerLostError."""

    def close(self) -> None:
        """Ends the launcher after all members have ended."""


class ForkLauncher:
    """Members forked from one server, which is started here.

    Args:
      setup: orders that all members have in common, see `member.run`; `folders`: the folder of their folders.
      inherited: file descriptors among them.
      seconds: how long the server may take to start or to answer.

    Raises:
      RefusedError: the server cannot fork, or does not come up.
    """

    def __init__(self, setup: Mapping[str, Any], inherited: list[int], seconds: float) -> None:
        self._seconds = seconds
        self._deaths: deque[Death] = deque()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.descriptor = self._control.fileno()
        with theirs:
            self._process = _spawn(
                "motif_jax.actors.fork_server",
                {**setup, "control": theirs.fileno()},
                [*inherited, theirs.fileno()],
                Path(setup["folders"]),
            )
        try:
            answer = self._next_message()
        except ServerLostError as error:
            self.close()
            raise RefusedError(f"the fork server did not come up ({error})") from None
        if "refused" in answer:
            self.close()
            raise RefusedError(answer["refused"])

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def start(self, orders: Mapping[str, Any]) -> int:
        names = [name for name in fork_server.PASSED if orders[name] >= 0]
        request = {name: value for name, value in orders.items() if name not in names} | {"passed": names}
        try:
            fork_server.send(self._control, request, tuple(orders[name] for name in names))
        except (BrokenPipeError, ConnectionResetError):
            raise self._lost() from None
        while True:
            answer = self._next_message()
            if "started" in answer:
                return answer["pid"]
            self._deaths.append(_death(answer))

    def deaths(self) -> list[Death]:
        while readable(self.descriptor, 0):
            self._deaths.append(_death(self._next_message()))
        found = list(self._deaths)
        self._deaths.clear()
        return found

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            fork_server.send(self._control, {"dismissed": True})
        self._control.close()
        try:
            self._process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _close_input(self._process)

    def _next_message(self) -> dict[str, Any]:
        if not readable(self.descriptor, self._seconds):
            self._process.kill()
            raise self._lost()
        received = fork_server.receive(self._control)
        if received is None:
            raise self._lost()
        return received[0]

    def _lost(self) -> ServerLostError:
        """The kernel has killed its members when it is a zombie."""
        code = self._process.wait()
        return ServerLostError(f"signal {-code}" if code < 0 else f"exit code {code}")


class ExecLauncher:
    """Members that are programs of their own: they share no pages, so they are slower."""

    descriptor = -1

    def __init__(self, setup: Mapping[str, Any], inherited: list[int]) -> None:
        self._setup, self._inherited = setup, inherited
        self._processes: dict[tuple[int, int], subprocess.Popen[bytes]] = {}

    def start(self, orders: Mapping[str, Any]) -> int:
        given = [orders[name] for name in fork_server.PASSED if orders[name] >= 0]
        whole, folder = {**self._setup, **orders}, Path(orders["folder"])
        process = _spawn("motif_jax.actors.member", whole, [*self._inherited, *given], folder)
        self._processes[orders["member"], orders["generation"]] = process
        return process.pid

    def deaths(self) -> list[Death]:
        ended = [key for key, process in self._processes.items() if process.poll() is not None]
        found = []
        for key in ended:
            process = self._processes.pop(key)
            _close_input(process)
            found.append(Death(*key, process.returncode))
        return found

    def close(self) -> None:
        for process in self._processes.values():
            process.wait()
            _close_input(process)


def _death(message: Mapping[str, Any]) -> Death:
    return Death(message["died"], message["generation"], message["code"])


def readable(descriptor: int, seconds: float) -> bool:
    """Whether a descriptor becomes readable within so many seconds. `select` fails above 1023."""
    watched = select.poll()
    watched.register(descriptor, select.POLLIN)
    return bool(watched.poll(1000 * seconds))


def _spawn(
    module: str, orders: Mapping[str, Any], inherited: list[int], folder: Path
) -> subprocess.Popen[bytes]:
    """Starts `python -m module` with its orders on standard input, which stays open: by it a child sees its parent."""
    with deaf_processes():
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=2,  # standard output is the parent's own: whatever an engine prints goes to the log
            pass_fds=inherited,
            env=_environment(folder),
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(orders).encode() + b"\n")
        process.stdin.flush()
    return process


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # of orders that were never read
        process.stdin.close()


def _environment(folder: Path) -> dict[str, str]:
    """The environment of a process: this package importable, its own temporary folder, and no thread pools."""
    root = str(resources.ROOT)
    path = os.environ.get("PYTHONPATH")
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {
        **os.environ,
        **threads,
        "TMPDIR": str(folder),
        "PYTHONPATH": root if not path else root + os.pathsep + path,
    }


@functools.cache
def no_use_of_forks() -> str | None:
    """Why forking would bring nothing here; None where it does."""
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-E", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"forking fails: {error}"
    if done.returncode:
        return f"forking fails: {done.stderr.strip().rpartition(chr(10))[2]}"
    return None if len(set(done.stdout.split())) == 1 else "forked processes have different addresses here"


def end(pid: int) -> None:
    """Kills a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_until_gone(pids: list[int], seconds: float) -> None:
    """Waits for the ends of killed processes that are not this one's children."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(_runs(pid) for pid in pids):
        time.sleep(0.005)


def see_off(launcher: Launcher, alive: set[int], pids: Sequence[int], seconds: float) -> None:
    """Waits for the members `alive`, whose processes are `pids[member]`, to end; kills those that have not in time."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(ServerLostError):  # and its members with it
        while alive:
            for death in launcher.deaths():
                alive.discard(death.member)
            if time.monotonic() > deadline:
                for member in alive:
                    end(pids[member])
                deadline = float("inf")
            time.sleep(0.002)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] not in "ZX"
