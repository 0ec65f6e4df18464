"""An episode on the terminal: its keys, its speed and pauses, and how a step is drawn."""

from __future__ import annotations

import contextlib
import math
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from rich.console import Group
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from motif_jax.core.errors import printable
from motif_jax.core.interruption import Interruption
from motif_jax.display import text_tables
from motif_jax.envs.spec import Action
from motif_jax.play.films.movie import BACK, COLOURS
from motif_jax.play.messages import MessageTally, as_text
from motif_jax.play.watching import WatchedStep

LabelOf: TypeAlias = Callable[[Action], str]
# The game has a dark background of its own: its colours are illegible on a light terminal.
_GROUND = "rgb({},{},{})".format(*BACK)
_STYLES = [Style(color=f"rgb({r},{g},{b})", bgcolor=_GROUND) for r, g, b in COLOURS]
BAR_RANGE = 4.0
# Lines of the full view, without the screen's rows.
_FULL_HEIGHT = 14
HELP = "Space pause  Right step  +/- speed  n next reward  e end of episode  q quit"
SPEEDS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, math.inf)
# While it waits for a key, the terminal looks for a signal at least so often.
LOOK_SECONDS = 0.5
# On the way to the end so many steps pass between two that are drawn.
_FINISHING_STEPS = 50
# Tasks take so much or less for each step, which is no reward that anybody looks for.
_LEAST_REWARD = 0.015

Draw = Callable[[WatchedStep], None]
KeyOf = Callable[[float], str | None]
# What a terminal sends for keys with names.
_ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left"}


@contextlib.contextmanager
def single_keys() -> Iterator[Callable[[float], str | None]]:
    """Gives a function that waits so many seconds for a key: 'up', 'left', ..., the character, or
    None.

    It raises EOFError if the terminal was closed. The terminal's settings come back at the end.
    """
    descriptor = sys.stdin.fileno()
    pending = b""
    before = termios.tcgetattr(descriptor)

    def key(timeout: float) -> str | None:
        nonlocal pending
        if not pending:
            # The descriptor itself: `sys.stdin` would buffer keys that `select` does not see.
            if not select.select([descriptor], [], [], timeout)[0]:
                return None
            pending = os.read(descriptor, 1024)
            if not pending:
                raise EOFError("the terminal was closed")
        length = 3 if pending[:3] in _ARROWS else 1
        data = pending[:length]
        pending = pending[length:]
        return _ARROWS.get(data, data.decode("latin-1"))

    # Not the raw mode, in which Ctrl-C would send no signal.
    tty.setcbreak(descriptor)
    try:
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def is_terminal() -> bool:
    """Whether a person can watch and press keys."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@dataclass
class Playback:
    """How the steps of one episode are shown; keys change it (`HELP`).

    Attributes:
      speed: steps a second; infinite: as fast as the episode is played.
      paused: the step that is shown stays until a key continues.
      skipping: nothing is drawn until the next reward.
      finishing: few steps are drawn until the end.
      quit: the rest of the episode, and later ones, are not shown.
    """

    speed: float
    paused: bool = False
    skipping: bool = False
    finishing: bool = False
    quit: bool = False

    def show(
        self, steps: Iterable[WatchedStep], draw: Draw, key_of: KeyOf, stop: Interruption
    ) -> None:
        """Draws steps until the last one, `quit` or a request to stop; `key_of(seconds)` waits so
        long for a key, None without one.
        """
        for watched in steps:
            if stop.requested:
                return
            # The last observation is always drawn.
            if self._is_hidden(watched) and watched.choice is not None:
                continue
            self.skipping = False
            draw(watched)
            self._wait(watched, draw, key_of, stop)
            if self.quit:
                return

    def _is_hidden(self, watched: WatchedStep) -> bool:
        if self.finishing and watched.step % _FINISHING_STEPS:
            return True
        return self.skipping and not _is_rewarded(watched)

    def _wait(self, watched: WatchedStep, draw: Draw, key_of: KeyOf, stop: Interruption) -> None:
        """Returns when the next step is due, or a key asks for it; the last step waits for any
        key.
        """
        # At an infinite speed the next step is due at once.
        due = time.monotonic() + 1 / self.speed
        at_end = watched.choice is None
        while not stop.requested:
            hold = (self.paused or at_end) and not self.finishing
            left = math.inf if hold else max(0.0, due - time.monotonic())
            key = key_of(min(left, LOOK_SECONDS))
            if key is None and left <= LOOK_SECONDS:
                return
            if key is not None and (self.press(key) or at_end):
                return
            # Again: a key has changed the state, or the terminal its size.
            draw(watched)

    def press(self, key: str) -> bool:
        """Does what a key says; returns whether the next step is to be played at once."""
        if key == " ":
            self.paused = not self.paused
        elif key in ("+", "=", "up"):
            self.speed = min((speed for speed in SPEEDS if speed > self.speed), default=self.speed)
        elif key in ("-", "down"):
            self.speed = max((speed for speed in SPEEDS if speed < self.speed), default=self.speed)
        elif key == "n":
            self.skipping = True
        elif key == "e":
            self.finishing = True
        elif key == "q":
            self.quit = True
        return key in ("right", ".", "n", "e", "q")


def _is_rewarded(watched: WatchedStep) -> bool:
    """Whether a step pays: by the intrinsic reward, or by the task where there is none."""
    if watched.reward is not None:
        return watched.intrinsic > 0
    return abs(watched.task_reward) > _LEAST_REWARD


@dataclass
class RewardTotals:
    """Rewards of the episode so far."""

    task: float = 0.0
    intrinsic: float = 0.0


def screen_text(
    chars: np.ndarray, colors: np.ndarray, cursor: tuple[int, int] | None = None
) -> Text:
    """The game's screen uint8, int8 [rows, columns] as text in colour; the cursor in reverse."""
    text = Text(no_wrap=True, end="")
    for row, (line, line_colors) in enumerate(zip(chars.tolist(), colors.tolist(), strict=True)):
        # Cells of one colour are one span: rich is slow with one for each cell.
        start = 0
        for column in range(1, len(line) + 1):
            if column < len(line) and line_colors[column] == line_colors[start]:
                continue
            letters = "".join(chr(code) if 32 <= code < 127 else " " for code in line[start:column])
            # Bits 0 to 3 are the colour, bit 4 is reverse video.
            style = _STYLES[line_colors[start] & 15]
            if line_colors[start] & 16:
                style += Style(reverse=True)
            text.append(letters, style)
            start = column
        if cursor is not None and cursor[0] == row and 0 <= cursor[1] < len(line):
            offset = len(text) - len(line) + cursor[1]
            text.stylize(Style(reverse=True), offset, offset + 1)
        text.append("\n")
    return text


def picture_text(picture: np.ndarray) -> Text:
    """A picture uint8 [height, width, 3] as half blocks, at most 64 columns and 18 lines."""
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((64, 36))
    # A line has two rows of pixels: an odd height gets a black one.
    pixels = np.asarray(image.crop((0, 0, image.width, image.height + image.height % 2)))
    text = Text(no_wrap=True, end="")
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
        for (r, g, b), below in zip(upper, lower, strict=True):
            text.append(
                "▀", Style(color=f"rgb({r},{g},{b})", bgcolor="rgb({},{},{})".format(*below))
            )
        text.append("\n")
    return text


def bar(value: float, width: int = 32, limit: float = BAR_RANGE) -> Text:
    """A bar from the middle: green to the right above 0, red to the left below."""
    half = width // 2
    length = min(half, round(abs(value) / limit * half))
    if value >= 0:
        return Text.assemble(" " * half, "|", ("█" * length, "green"), " " * (half - length))
    return Text.assemble(" " * (half - length), ("█" * length, "red"), "|", " " * half)


def _numbers(watched: WatchedStep, totals: RewardTotals, label_of: LabelOf) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True)
    table.add_row("step", f"{watched.step:,}")
    table.add_row("return", f"{totals.task:.2f}   last reward {watched.task_reward:+.2f}")
    reward = watched.reward
    if reward is not None:
        table.add_row("intrinsic return", f"{totals.intrinsic:.2f}   here {watched.intrinsic:+.3f}")
        table.add_row(
            "message reward", f"{reward.normalised:+.3f} normalised, {reward.raw:+.4f} raw"
        )
        table.add_row(f"-{BAR_RANGE:g} to {BAR_RANGE:g}", bar(reward.normalised))
    if watched.text is not None:
        table.add_row("message seen", f"{watched.count} times")
    choice = watched.choice
    if choice is not None:
        if choice.value is not None:
            table.add_row("value estimate", f"{choice.value:.3f}")
        # As text: a string such as '[/a]' would be markup.
        table.add_row("next action", Text(label_of(choice.action)))
    return table


def _probabilities(watched: WatchedStep, label_of: LabelOf, top: int = 6) -> Table:
    """The `top` likeliest of numbered actions; the chosen one is among them."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, width=15)
    table.add_column(no_wrap=True)
    if watched.choice is None or watched.choice.probabilities is None:
        return table
    probabilities = watched.choice.probabilities
    # Real numbers have no probabilities.
    chosen = cast(int, watched.choice.action)
    ranked = np.argsort(-probabilities, kind="stable")[:top].tolist()
    if chosen not in ranked:
        ranked[-1] = chosen
    for action in ranked:
        probability = float(probabilities[action])
        name = Text(label_of(action), style="bold" if action == chosen else "")
        table.add_row(name, Text(f"{'▇' * round(20 * probability)} {probabilities[action]:.0%}"))
    return table


def _facts(watched: WatchedStep, totals: RewardTotals, label_of: LabelOf) -> Text:
    """The numbers of `_numbers` in one line."""
    parts = [f"step {watched.step}", f"return {totals.task:.2f}"]
    reward = watched.reward
    if reward is not None:
        parts.append(f"intrinsic {totals.intrinsic:.2f} ({watched.intrinsic:+.2f})")
        parts.append(f"message {reward.normalised:+.2f}")
        parts.append(f"x{watched.count}")
    choice = watched.choice
    if choice is not None:
        if choice.value is not None:
            parts.append(f"value {choice.value:.2f}")
        label = label_of(choice.action)
        if choice.probabilities is not None:
            label += f" {choice.probabilities[cast(int, choice.action)]:.0%}"
        parts.append(label)
    return Text("  ".join(parts), no_wrap=True)


def view(
    watched: WatchedStep,
    totals: RewardTotals,
    label_of: LabelOf,
    title: str,
    state: str,
    keys: str,
    height: int,
) -> Group:
    """Draws one step on 80 columns and `height` lines; with few lines it leaves out numbers, empty
    rows, and at last keys.

    `label_of` names an action.
    """
    frame = watched.frame

    def printable_label(action: Action) -> str:
        return printable(label_of(action))

    rows = 0 if frame is None else len(frame.chars)
    picture = None
    if frame is not None and frame.picture is not None and not rows:
        picture = picture_text(frame.picture)
        rows = picture.plain.count("\n")
    compact = height < rows + _FULL_HEIGHT

    # From above: title, screen, text, and numbers in a panel or in a line.
    parts: list = [] if compact else [Text(printable(title), style="bold", no_wrap=True)]
    if picture is not None:
        parts.append(picture)
    elif frame is not None:
        cursor = frame.cursor
        drawn_rows = [row for row in range(rows) if not (compact and row in frame.spare_rows)]
        # Spare rows are left out of a compact view, which moves the rows below.
        if cursor is not None:
            cursor = (drawn_rows.index(cursor[0]), cursor[1]) if cursor[0] in drawn_rows else None
        parts.append(screen_text(frame.chars[drawn_rows], frame.colors[drawn_rows], cursor))
        rows = len(drawn_rows)
    text_lines = 0
    if watched.text is not None:
        style = "bold green" if watched.reward is not None and watched.intrinsic > 0 else ""
        parts.append(Text(as_text(watched.text) or "(no message)", style=style, no_wrap=True))
        text_lines = 1

    help_line = Text(f"{state}   {keys}", style="dim", no_wrap=True)
    if not compact:
        numbers = Table.grid(padding=(0, 3))
        numbers.add_row(
            _numbers(watched, totals, printable_label), _probabilities(watched, printable_label)
        )
        return Group(*parts, Panel(numbers, padding=(0, 1)), help_line)
    # One line in place of the panel, and without the keys where the lines do not do.
    facts = _facts(watched, totals, printable_label)
    if height < rows + text_lines + 2:
        return Group(*parts, Text.assemble((f"{state}  ", "dim"), facts, no_wrap=True))
    return Group(*parts, facts, help_line)


def message_tables(tallies: Sequence[MessageTally], title: str, top: int) -> list[Table]:
    """The messages of an episode by count, and with a reward also by their sum after threshold and
    count discount.
    """
    is_rated = any(tally.reward is not None for tally in tallies)
    header = ("message", "times", "reward", "paid") if is_rated else ("message", "times")
    orders = {
        "most frequent messages": sorted(tallies, key=lambda tally: (-tally.count, tally.text))
    }
    if is_rated:
        paying = [tally for tally in tallies if tally.total]
        orders["messages that paid most"] = sorted(paying, key=lambda tally: -(tally.total or 0))
    tables = []
    for order, ranked in orders.items():
        rows = [_message_cells(tally)[: len(header)] for tally in ranked[:top]]
        tables.append(text_tables.terminal(header, rows, f"{title}: {order}", text_first=True))
    return tables


def _message_cells(tally: MessageTally) -> tuple[str, ...]:
    reward = ""
    paid = ""
    if tally.reward is not None:
        reward = f"{tally.reward:+.3f}"
        paid = f"{tally.total:+.3f}"
    return (tally.text.replace("\\x0a", " ") or "(no message)", f"{tally.count:,}", reward, paid)
