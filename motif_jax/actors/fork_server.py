"""The process that actors are forked from: `python -m motif_jax.actors.fork_server`, its setup as a line on standard input.

It loads everything that actors need, has neither jax nor threads, and only forks and reaps. All actors share its pages, and
the engine lies at the same addresses in all of them, replacements included.

It ends when the socket to its parent does, after its actors, and removes their folder if the parent was killed. When it is
killed itself the kernel kills its actors too.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from motif_jax.actors import folders, member
from motif_jax.actors.rollouts import ActorsConfig
from motif_jax.envs import registry

_MESSAGE_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
# File descriptors that are a member's own; `passed` of the request to fork it names those that come with it.
PASSED = ("commands", "following", "turns")


def send(connection: socket.socket, message: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """Sends one message, with file descriptors."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    connection.sendmsg([json.dumps(message).encode()], ancillary)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One message and its file descriptors; None when the other side is gone."""
    size = socket.CMSG_SPACE(len(PASSED) * array.array("i").itemsize)
    try:
        data, ancillary, *_ = connection.recvmsg(_MESSAGE_BYTES, size, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content)
    return (json.loads(data), list(descriptors)) if data else None


def preload(config: ActorsConfig) -> None:
    """Imports what the environments import, so that no actor has to, and prepares what they share."""
    spec = registry.spec(config.env, **config.options)
    for name in (*spec.modules, *([spec.group.partition(":")[0]] if spec.group else [])):
        module = importlib.import_module(name)
        getattr(module, "preload", lambda: None)()


class ForkServer:
    """Forks members on request and says when they have ended.

    Args:
      setup: orders that all members have in common, see `member.run`, and `control`, the descriptor of the socket to the
        parent.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._setup = setup
        self._control = socket.socket(fileno=setup["control"])
        self._death = _death_signal()
        self._children: dict[int, tuple[int, int]] = {}
        self._dismissed = False

    def serve(self) -> None:
        """Serves until the parent is gone and the last member has ended."""
        preload(ActorsConfig(**self._setup["config"]))
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:
            send(
                self._control, {"refused": f"what the environment imports has started {threads - 1} threads"}
            )
            return
        gc.collect()
        gc.freeze()  # actors share what is there now: nothing is to be gained by looking through it
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        send(self._control, {"up": True})
        watched = select.poll()
        watched.register(self._control, select.POLLIN)
        watched.register(woken, select.POLLIN)
        try:
            while True:
                events = dict(watched.poll())
                if woken in events:
                    os.read(woken, _MESSAGE_BYTES)
                    self._bury()
                if self._control.fileno() in events and not self._handle((woken, waker)):
                    return
        except (BrokenPipeError, ConnectionResetError):
            pass  # the parent is gone
        finally:
            self._wait_for_all()

    def _handle(self, own: tuple[int, int]) -> bool:
        """Handles a message of the parent; returns whether the parent still runs."""
        received = receive(self._control)
        if received is None:
            return False
        request, descriptors = received
        if "dismissed" in request:
            self._dismissed = True
            return True
        given = dict(zip(request["passed"], descriptors, strict=True))
        here = os.getpid()
        pid = os.fork()
        if not pid:
            self._control.close()
            _become(lambda: self._serve_as_member(request, given, here), own)
        for descriptor in descriptors:
            os.close(descriptor)
        self._children[pid] = request["member"], request["generation"]
        send(self._control, {"started": request["member"], "pid": pid})
        return True

    def _serve_as_member(self, request: Mapping[str, Any], given: Mapping[str, int], parent: int) -> int:
        """In a new process."""
        self._death(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return 0
        os.environ["TMPDIR"] = tempfile.tempdir = request["folder"]
        # The members' signals at the parent's death need an open file for each.
        lifeline = os.open("/proc/self/fd/0", os.O_RDONLY | os.O_NONBLOCK)
        return member.serve({**self._setup, **given, **request, "lifeline": lifeline})

    def _bury(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            number, generation = self._children.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            send(self._control, {"died": number, "generation": generation, "code": code})

    def _wait_for_all(self) -> None:
        """Members end when the parent does; the kernel kills those that are stuck."""
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        if not self._dismissed:
            folders.remove_pool(Path(self._setup["folders"]))


def _become(serve: Callable[[], int], own: tuple[int, int]) -> NoReturn:
    """Runs a member in this forked process and exits with the code of `serve`."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in own:
            os.close(descriptor)
        code = serve()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _death_signal() -> Callable[..., int]:
    """The system's prctl, looked up before there is anything to fork."""
    function = ctypes.CDLL(None, use_errno=True).prctl
    function.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return lambda option, value: function(option, value, 0, 0, 0)


def main() -> int:
    """Reads the setup and serves."""
    member.ignore_signals_to_the_group()
    line = sys.stdin.readline()
    if not line.endswith("\n"):  # the parent was killed before it had written it
        folders.remove_pool(Path(os.environ["TMPDIR"]))
        return 0
    setup = json.loads(line)
    try:
        ForkServer(setup).serve()
    except (BrokenPipeError, ConnectionResetError):
        folders.remove_pool(Path(setup["folders"]))  # the parent is gone
    return 0


if __name__ == "__main__":
    sys.exit(main())
