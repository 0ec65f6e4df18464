"""Ctrl-C: what it ends, with which words, and what is closed before."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.processes import REPOSITORY, with_sigint

HEAD = """
import os, signal, subprocess, sys, time
from motif_jax.core.interruption import deaf_processes, leave_at_interrupt

"""


def run(folder: Path, body: str, ignored: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs a module in `folder` as a terminal starts it, or (`ignored`) as a script starts one in the background."""
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
