"""What tests share that start programs of their own, kill them, and look for what they leave
behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests import reward_fixtures
from tests.reward_fixtures import REPOSITORY

# Above those that Linux gives to outgoing connections: nobody gets one of them by accident before
# it is used. Of the processes that run tests side by side (gw0, gw1, ...) each has ports of its
# own, and gives each of them once: whoever has one may not listen on it yet.
_PORTS = range(61_440 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8 * 512, 65_536)[
    :512
]
_not_given = random.sample(_PORTS, len(_PORTS))


def free_port() -> int:
    """A TCP port that nobody listens on, and that nobody was given before."""
    while _not_given:
        port = _not_given.pop()
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise AssertionError("no port is free")


def wait_until(
    condition: Callable[[], object], event: str, seconds: float = 500.0, interval: float = 0.1
) -> None:
    """Returns when `condition` holds, which is asked every `interval` seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen in {seconds} s: {event}"
        time.sleep(interval)


def status_of(url: str) -> int:
    """The status that a server answers with, 0 where there is none."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as reply:
        return reply.status
    return 0


def descendants(pid: int) -> set[int]:
    """Process ids of everything that `pid` has started and that is still there."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return set()


def still_there(pids: set[int]) -> set[int]:
    """Those of `pids` that run or lie there as zombies.

    Orphans' zombies are the first process's to take away, which in a container may be one that
    takes nobody's.
    """
    running = {
        process for process in psutil.process_iter(["ppid", "status"]) if process.pid in pids
    }
    gone = {"ppid": 1, "status": psutil.STATUS_ZOMBIE}
    return {process.pid for process in running if process.info != gone}


def unread(pipe: int) -> int:
    """Bytes that lie in a pipe or a socket."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def with_sigint(handler: signal.Handlers, *arguments: str) -> list[str]:
    """`python ARGUMENTS` with SIGINT as a terminal gives it (SIG_DFL) or a script in the background
    (SIG_IGN).
    """
    code = (
        f"import os, signal, sys; signal.signal(signal.SIGINT, signal.{handler.name});"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    return [sys.executable, "-c", code, *arguments]


class Program:
    """A program in a session of its own whose output, standard error included, goes to the file
    `log`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: dict[str, str],
        typed: str | Path = os.devnull,
    ) -> None:
        """`typed`: the file that it reads as what somebody types."""
        self.log = log
        with open(log, "ab") as file, open(typed, "rb") as source:
            self.process = subprocess.Popen(
                arguments,
                cwd=REPOSITORY,
                env={**os.environ, **environment},
                stdin=source,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the program alone, not to what it has started."""
        os.kill(self.pid, number)

    def wait(self, seconds: float = 500.0) -> int:
        """The exit code, negative for the signal that ended it."""
        return self.process.wait(seconds)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


def launch(
    workdir: Path,
    config: str,
    *flags: str,
    log: Path,
    typed: str | Path = os.devnull,
    **environment: str,
) -> Program:
    """Starts `python -m motif_jax.launch` with configs/CONFIG on the CPU, with the device count of
    the flags.
    """
    stage, _, variant = config.partition(".py")
    arguments = reward_fixtures.command(stage, workdir, *flags, variant=variant.removeprefix(":"))
    return Program(arguments, log, {**reward_fixtures.environment(), **environment}, typed)


def launch_hosts(
    count: int, workdir: Path, config: str, *flags: str, log: Path, **environment: str
) -> list[Program]:
    """Starts as many processes as hosts of one training, each with a log of its own."""
    host_flags = [
        f"--config.hosts.coordinator=localhost:{free_port()}",
        f"--config.hosts.count={count}",
    ]
    logs = [log.with_name(f"{log.name}_{index}") for index in range(count)]
    return [
        launch(
            workdir,
            config,
            *flags,
            *host_flags,
            f"--config.hosts.index={index}",
            log=path,
            **environment,
        )
        for index, path in enumerate(logs)
    ]


def killed(code: str, *arguments: str, returns: int = -signal.SIGKILL) -> None:
    """Runs Python code that kills its own process, with this process's devices and compiler's
    options: their programs are equal.
    """
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=variables, cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=False
    )  # fmt: skip
    assert done.returncode == returns, done.stderr[-2000:]


@contextlib.contextmanager
def ended(programs: list[Program]) -> Iterator[None]:
    """Kills what is left of `programs`, and of what they have started, when the block ends."""
    try:
        yield
    finally:
        left = {pid for program in programs for pid in descendants(program.pid)}
        running = {program.pid for program in programs if program.process.poll() is None}
        for pid in left | running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for program in programs:
            program.process.wait(90)


def killed_often(
    start: Callable[[int], Program],
    progress: Callable[[], int],
    step: int,
    folder: Path,
    least: int,
) -> None:
    """Kills a program whenever its `progress` has grown by a `step`, until it ends by itself behind
    the `least` kills.

    `start` takes the number of the attempt. What it had started ends with it; where it was over too
    soon, `folder` is begun again.
    """
    kills = 0
    for attempt in range(24):
        before = progress()
        program = start(attempt)
        with ended([program]):
            while program.process.poll() is None and _progress_now(progress) < before + step:
                time.sleep(0.001)
            if program.process.poll() is None:
                workers = descendants(program.pid)
                program.send(signal.SIGKILL)
                kills += 1
                program.wait()
                wait_until(lambda: not still_there(workers), "the workers' end", 90)  # noqa: B023
                continue
        assert program.wait() == 0, program.text()[-3000:]
        if kills >= least:
            return
        kills = 0
        shutil.rmtree(folder)
    raise AssertionError("it does not end by itself behind so many kills")


def _progress_now(progress: Callable[[], int]) -> int:
    """The progress of a program that runs; 0 in the moment in which it moves or removes what is
    counted.
    """
    with contextlib.suppress(FileNotFoundError):
        return progress()
    return 0


def checkpoint_steps(workdir: Path) -> list[int]:
    """Those that a run has saved, in their order."""
    names = (path.name for path in (workdir / "checkpoints").glob("*"))
    return sorted(int(name) for name in names if name.isdigit())


def processes_with(name: str, value: str) -> set[int]:
    """Process ids whose environment has `name=value`, orphans included; zombies have none."""
    processes = psutil.process_iter(["environ"])
    return {
        process.pid for process in processes if (process.info["environ"] or {}).get(name) == value
    }


def unused_shared_memory() -> set[str]:
    """Names of this user's files in /dev/shm that no process maps: what somebody left behind."""
    names = set()
    for entry in os.scandir("/dev/shm"):
        with contextlib.suppress(FileNotFoundError):
            if (
                entry.stat(follow_symlinks=False).st_uid == os.getuid()
            ):  # whether others' are in use cannot be seen by everybody
                names.add(entry.name)
    for path in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            text = path.read_text()
            names -= {name for name in names if f"/dev/shm/{name}" in text}
    return names


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[int], None]]:
    """A file system of `size` bytes at `folder`; gives a function that changes its size. Only root
    may mount one.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")

    def mount(*options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no small disk can be mounted: {done.stderr.strip()}")

    folder.mkdir(parents=True, exist_ok=True)
    mount(f"size={size}")
    try:
        yield lambda bytes_now: mount("remount", f"size={bytes_now}")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
