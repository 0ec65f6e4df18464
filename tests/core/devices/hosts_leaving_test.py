"""How a host of several leaves a run that ends with an error."""

from __future__ import annotations

import errno
import subprocess
import sys
from typing import Any

import jax
import pytest

from motif_jax.core.cluster import ClusterHosts
from motif_jax.core.devices import hosts
from motif_jax.core.devices.hosts import connected
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import INTERRUPTED, INTERRUPTED_CODE


def test_an_interrupted_host_leaves_at_once_with_one_line() -> None:
    code = "from motif_jax.core.devices.hosts import leave_at_once_on_error as late\nwith late(1): raise KeyboardInterrupt"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (INTERRUPTED_CODE, f"{INTERRUPTED}\n")


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the process was left with: line, exit code and seconds of each call."""
    calls: list[Any] = []
    monkeypatch.setattr(hosts, "leave", lambda *arguments: calls.append(arguments))
    return calls


LONG = "a path is longer than this system allows"
ENDED = "its log says why; the same command resumes the run"


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (UserError("one\n two"), "error: one two", 2),
        (OSError(errno.ENAMETOOLONG, "x"), f"error: {LONG}: [Errno 36] x", 2),
        (
            jax.errors.JaxRuntimeError("closed by peer"),
            f"error: another host of the run has ended: {ENDED}",
            1,
        ),
        (
            jax.errors.JaxRuntimeError("of another kind"),
            "jax.errors.JaxRuntimeError: of another kind",
            1,
        ),
        (KeyboardInterrupt(), INTERRUPTED, INTERRUPTED_CODE),
        (ValueError("closed by peer"), "ValueError: closed by peer", 1),
    ],
)
@pytest.mark.parametrize(("index", "seconds"), [(0, 5.0), (1, 0.0)])
def test_a_failing_host_leaves_with_the_line_of_its_error(
    left: list[Any], error: BaseException, line: str, code: int, index: int, seconds: float
) -> None:
    with hosts.leave_at_once_on_error(index):
        raise error

    # The first host waits, since its end cuts off the others.
    [(message, *rest)] = left
    assert (message.splitlines()[-1], *rest) == (line, code, seconds)


@pytest.mark.parametrize(
    ("error", "has_trace"),
    [(UserError("one"), False), (KeyboardInterrupt(), False), (ValueError("closed by peer"), True)],
)
def test_only_an_error_of_the_program_has_a_trace(
    left: list[Any], error: BaseException, has_trace: bool
) -> None:
    with hosts.leave_at_once_on_error(1):
        raise error

    [(message, *_)] = left
    assert message.startswith("Traceback") == has_trace


def test_an_exit_that_was_asked_for_stays_one(left: list[Any]) -> None:
    with pytest.raises(SystemExit), hosts.leave_at_once_on_error(1):
        raise SystemExit

    assert not left


def test_a_run_of_one_host_raises_as_usual() -> None:
    with pytest.raises(ZeroDivisionError), connected(ClusterHosts()):
        raise ZeroDivisionError
