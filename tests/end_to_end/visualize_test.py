"""visualize and replay through their real flags; the live view on a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import math
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

from motif_jax.envs.replay import Recording
from motif_jax.stages import visualize
from motif_jax.support.interruption import INTERRUPTED

LAUNCH = [sys.executable, "-m", "motif_jax.launch"]


def launch(repository: Path, *flags: str) -> subprocess.CompletedProcess:
    # Titles of tables are in several lines where these are short.
    wide = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(
        [*LAUNCH, *flags], cwd=repository, env=wide, capture_output=True, text=True, timeout=500
    )


def test_without_a_terminal_it_records(repository, tmp_path):
    done = launch(
        repository, "--config=configs/visualize.py:smoke", f"--workdir={tmp_path}", "--config.episodes=2",
        "--config.forms.gif=True", "--config.forms.stop=10", "--config.environment.max_episode_steps=40",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "episode 1: most frequent messages" in done.stdout
    for index in (0, 1):
        recording = Recording.load(tmp_path / f"episode-{index:05d}.json")
        assert recording.info["length"] <= 40
        page = (tmp_path / f"episode-{index:05d}.html").read_text()
        assert f"seed {recording.seed}" in page
        assert (tmp_path / f"episode-{index:05d}.gif").read_bytes().startswith(b"GIF8")
        assert (tmp_path / f"episode-{index:05d}.ttyrec3.bz2").read_bytes().startswith(b"BZh")


class Terminal:
    """A process on a pseudo-terminal of 100 columns."""

    def __init__(self, repository: Path, lines: int, *flags: str) -> None:
        self.descriptor, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 100, 0, 0))
        # readline, which pytest loads, leaves sizes in the environment that would overrule the terminal's.
        environment = {k: v for k, v in os.environ.items() if k not in ("LINES", "COLUMNS")}
        self.process = subprocess.Popen(
            [*LAUNCH, *flags], cwd=repository, stdin=terminal, stdout=terminal, stderr=terminal,
            env=environment | {"TERM": "xterm-256color"}, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self.output = b""

    def read(self, until: bytes, timeout: float = 200, since: int = 0) -> None:
        deadline = time.monotonic() + timeout
        while until not in self.output[since:]:
            assert time.monotonic() < deadline, self.output[-2000:]
            if select.select([self.descriptor], [], [], 0.2)[0]:
                try:
                    data = os.read(self.descriptor, 65536)
                except OSError:  # the process has ended
                    data = b""
                assert data or until in self.output[since:], self.output[-2000:]
                self.output += data

    def press(self, keys: bytes) -> int:
        before = len(self.output)
        os.write(self.descriptor, keys)
        return before

    def end(self) -> int:
        while True:
            try:
                data = os.read(self.descriptor, 65536)
            except OSError:
                break
            if not data:
                break
            self.output += data
        os.close(self.descriptor)
        return self.process.wait(500)


@pytest.mark.extra
@pytest.mark.parametrize("number", [signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(repository, tmp_path, monkeypatch, number):
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
    terminal.process.send_signal(number)
    terminal.read(b"\x1b[?1049l")
    terminal.process.wait(500)
    assert termios.tcgetattr(terminal.descriptor)[3] == before
    assert terminal.end() == 128 + number
    assert terminal.output.rindex(b"\x1b[?25h") > terminal.output.rindex(b"\x1b[?25l")
    behind = terminal.output.partition(b"\x1b[?1049l")[2]
    assert (INTERRUPTED.encode() in behind) is (number == signal.SIGINT)
    assert b"Traceback" not in terminal.output
    assert not list(games.iterdir())


def test_full_speed_is_above_all_others():
    player = object.__new__(visualize._Player)
    player._speed, found = math.inf, []
    for key in ("+", "-", "-", "+", "+", "+"):
        player._press(key)
        found.append(player._speed)
    assert found == [math.inf, 120, 60, 120, math.inf, math.inf]
