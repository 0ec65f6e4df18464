"""Single keys from a terminal, whose settings come back."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator

import pytest

from motif_jax.play.terminal import single_keys


class Terminal:
    """A terminal: `keyboard` is the end that a person types at."""

    def __init__(self) -> None:
        self.keyboard, self.program = os.openpty()

    def settings(self) -> list[object]:
        return termios.tcgetattr(self.program)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    terminal = Terminal()
    with os.fdopen(terminal.program) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield terminal
    os.close(terminal.keyboard)


def test_keys_are_read_one_by_one_without_enter(terminal: Terminal) -> None:
    with single_keys() as key:
        os.write(terminal.keyboard, b"q\x1b[A\x1b[D+")
        keys = [key(10.0) for _ in range(4)]

        assert keys == ["q", "up", "left", "+"]
        assert key(0.0) is None


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_terminal_has_its_settings_back(
    terminal: Terminal, error: type[BaseException] | None
) -> None:
    before = terminal.settings()

    try:
        with single_keys():
            assert terminal.settings() != before
            if error is not None:
                raise error
    except KeyboardInterrupt:
        pass

    assert terminal.settings() == before
