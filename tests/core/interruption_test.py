"""Ctrl-C: what it ends, with which words, and what is closed before."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from motif_jax.core.interruption import Interruption
from tests.processes import REPOSITORY, with_sigint

HEAD = """
import os, signal, subprocess, sys, time
from motif_jax.core.interruption import deaf_processes, leave_at_interrupt

"""


def run(folder: Path, body: str, ignored: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs a module in `folder` as a terminal starts it, or (`ignored`) as a script starts one in
    the background.
    """
    (folder / "program.py").write_text(HEAD + body)
    return subprocess.run(
        with_sigint(signal.SIG_IGN if ignored else signal.SIG_DFL, "-B", "-m", "program"),
        cwd=folder, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip


def test_nothing_is_interrupted_where_the_signal_is_ignored(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "leave_at_interrupt(); os.kill(os.getpid(), signal.SIGINT); time.sleep(0.1); print('worked')",
        True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "worked\n", "")


def test_processes_that_work_for_another_do_not_hear_it(tmp_path: Path) -> None:
    body = """
child = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(0.1); print('worked', flush=True)"
with deaf_processes():
    deaf = subprocess.Popen([sys.executable, "-c", child])
assert deaf.wait() == 0
assert subprocess.run([sys.executable, "-c", child], stderr=subprocess.DEVNULL).returncode != 0
"""
    done = run(tmp_path, body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "worked\n", "")


SIGNALS = [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_a_request_to_stop(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    with Interruption() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)

        assert stop.requested
        assert stop.signal_name == number.name
        assert (
            capfd.readouterr().err
            == f"{number.name}: saving and stopping; the same command continues\n"
        )


@pytest.mark.parametrize("number", SIGNALS)
def test_after_the_block_a_signal_does_what_it_did(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    with Interruption():
        assert signal.getsignal(number) is not before

    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_process_leaves_with_the_exit_code_of_its_signal(number: signal.Signals) -> None:
    with Interruption() as stop:
        os.kill(os.getpid(), number)

        with pytest.raises(SystemExit) as left:
            stop.leave()

    assert left.value.code == 128 + number


def test_a_process_that_leaves_after_ctrl_c_is_interrupted() -> None:
    with Interruption() as stop:
        os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            stop.leave()


def test_a_second_ctrl_c_interrupts_at_once() -> None:
    with Interruption():
        os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
