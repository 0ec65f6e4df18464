"""The live view of visualize on a real pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from motif_jax.core.interruption import INTERRUPTED

LAUNCH = [sys.executable, "-m", "motif_jax.launch"]


class Terminal:
    """A process on a pseudo-terminal of 100 columns."""

    def __init__(self, repository: Path, lines: int, *flags: str) -> None:
        self.descriptor, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 100, 0, 0))
        # readline, which pytest loads, leaves sizes in the environment that would overrule the
        # terminal's.
        environment = {k: v for k, v in os.environ.items() if k not in ("LINES", "COLUMNS")}
        self.process = subprocess.Popen(
            [*LAUNCH, *flags], cwd=repository, stdin=terminal, stdout=terminal, stderr=terminal,
            env=environment | {"TERM": "xterm-256color"}, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self.output = b""

    def read(self, until: bytes, timeout: float = 200) -> None:
        deadline = time.monotonic() + timeout
        while until not in self.output:
            assert time.monotonic() < deadline, self.output[-2000:]
            if select.select([self.descriptor], [], [], 0.2)[0]:
                data = self.some()
                assert data, self.output[-2000:]

    def some(self) -> bytes:
        """What has come, nothing where the process has ended."""
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self.descriptor, 65536)
        self.output += data
        return data

    def end(self) -> int:
        while self.some():
            pass
        os.close(self.descriptor)
        return self.process.wait(500)


@pytest.mark.slow
def test_ctrl_c_leaves_the_terminal_as_it_was(repository, tmp_path, monkeypatch):
    games = tmp_path / "games"
    games.mkdir()
    monkeypatch.setenv("TMPDIR", str(games))
    terminal = Terminal(
        repository, 45, "--config=configs/visualize.py", f"--workdir={tmp_path / 'v'}", "--config.seconds_per_step=1000",
    )  # fmt: skip
    before = termios.tcgetattr(terminal.descriptor)[3]
    terminal.read(b"0.001 steps/s")
    assert list(games.iterdir())
    assert not termios.tcgetattr(terminal.descriptor)[3] & (termios.ECHO | termios.ICANON)
    terminal.process.send_signal(signal.SIGINT)
    terminal.read(b"\x1b[?1049l")
    terminal.process.wait(500)
    assert termios.tcgetattr(terminal.descriptor)[3] == before
    assert terminal.end() == 128 + signal.SIGINT
    assert terminal.output.rindex(b"\x1b[?25h") > terminal.output.rindex(b"\x1b[?25l")
    behind = terminal.output.partition(b"\x1b[?1049l")[2]
    assert INTERRUPTED.encode() in behind
    assert b"Traceback" not in terminal.output
    assert not list(games.iterdir())
