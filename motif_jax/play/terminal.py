"""An episode on the terminal: the map in colour, the reward as a bar, the policy's probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Group
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from motif_jax.core.errors import printable
from motif_jax.display import text_tables
from motif_jax.play.films.movie import BACK, COLOURS
from motif_jax.play.messages import MessageTally, as_text
from motif_jax.play.watching import WatchedStep

# The game has a dark background of its own: its colours are illegible on a light terminal.
_GROUND = "rgb({},{},{})".format(*BACK)
_STYLES = [Style(color=f"rgb({r},{g},{b})", bgcolor=_GROUND) for r, g, b in COLOURS]
BAR_RANGE = 4.0
# Lines of the full view, without the screen's rows.
_FULL_HEIGHT = 14


@dataclass
class RewardTotals:
    """Rewards of the episode so far."""

    task: float = 0.0
    intrinsic: float = 0.0


def screen_text(chars: np.ndarray, colors: np.ndarray, cursor: tuple[int, int] | None = None) -> Text:
    """The game's screen uint8, int8 [rows, columns] as text in colour; the cursor in reverse."""
    text = Text(no_wrap=True, end="")
    for row, (line, shades) in enumerate(zip(chars.tolist(), colors.tolist(), strict=True)):
        start = 0
        for column in range(1, len(line) + 1):
            if column == len(line) or shades[column] != shades[start]:
                shown = "".join(chr(c) if 32 <= c < 127 else " " for c in line[start:column])
                style = _STYLES[shades[start] & 15]
                text.append(shown, style + Style(reverse=True) if shades[start] & 16 else style)
                start = column
        if cursor is not None and cursor[0] == row and 0 <= cursor[1] < len(line):
            place = len(text) - len(line) + cursor[1]
            text.stylize(Style(reverse=True), place, place + 1)
        text.append("\n")
    return text


def picture_text(picture: np.ndarray) -> Text:
    """A picture uint8 [height, width, 3] as half blocks, at most 64 columns and 18 lines."""
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((64, 36))
    pixels = np.asarray(image.crop((0, 0, image.width, image.height + image.height % 2)))
    text = Text(no_wrap=True, end="")
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
        for (r, g, b), below in zip(upper, lower, strict=True):
            text.append("▀", Style(color=f"rgb({r},{g},{b})", bgcolor="rgb({},{},{})".format(*below)))
        text.append("\n")
    return text


def bar(value: float, width: int = 32, limit: float = BAR_RANGE) -> Text:
    """A bar from the middle: green to the right above 0, red to the left below."""
    half = width // 2
    length = min(half, round(abs(value) / limit * half))
    if value >= 0:
        return Text.assemble(" " * half, "|", ("█" * length, "green"), " " * (half - length))
    return Text.assemble(" " * (half - length), ("█" * length, "red"), "|", " " * half)


def _numbers(sight: WatchedStep, totals: RewardTotals, names: Sequence[str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True)
    table.add_row("step", f"{sight.step:,}")
    table.add_row("return", f"{totals.task:.2f}   last reward {sight.task_reward:+.2f}")
    if (reward := sight.reward) is not None:
        table.add_row("intrinsic return", f"{totals.intrinsic:.2f}   here {sight.intrinsic:+.3f}")
        table.add_row("message reward", f"{reward.normalised:+.3f} normalised, {reward.raw:+.4f} raw")
        table.add_row(f"-{BAR_RANGE:g} to {BAR_RANGE:g}", bar(reward.normalised))
    if sight.text is not None:
        table.add_row("message seen", f"{sight.count} times")
    if (choice := sight.choice) is not None:
        if choice.value is not None:
            table.add_row("value estimate", f"{choice.value:.3f}")
        table.add_row("next action", Text(names[choice.action]))
    return table


def _probabilities(sight: WatchedStep, names: Sequence[str], most: int = 6) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, width=15)
    table.add_column(no_wrap=True)
    if sight.choice is None or sight.choice.probabilities is None:
        return table
    shares, chosen = sight.choice.probabilities, sight.choice.action
    ranked = np.argsort(-shares, kind="stable")[:most].tolist()
    if chosen not in ranked:
        ranked[-1] = chosen
    for action in ranked:
        share = f"{'▇' * round(20 * float(shares[action]))} {shares[action]:.0%}"
        table.add_row(Text(names[action], style="bold" if action == chosen else ""), Text(share))
    return table


def _facts(sight: WatchedStep, totals: RewardTotals, names: Sequence[str]) -> Text:
    parts = [f"step {sight.step}", f"return {totals.task:.2f}"]
    if (reward := sight.reward) is not None:
        parts.append(f"intrinsic {totals.intrinsic:.2f} ({sight.intrinsic:+.2f})")
        parts += [f"message {reward.normalised:+.2f}", f"x{sight.count}"]
    if (choice := sight.choice) is not None:
        parts += [] if choice.value is None else [f"value {choice.value:.2f}"]
        shares = choice.probabilities
        parts.append(names[choice.action] + ("" if shares is None else f" {shares[choice.action]:.0%}"))
    return Text("  ".join(parts), no_wrap=True)


def view(
    sight: WatchedStep,
    totals: RewardTotals,
    names: Sequence[str],
    title: str,
    state: str,
    keys: str,
    height: int,
) -> Group:
    """Draws one step on 80 columns and `height` lines; with few lines it leaves out numbers, empty rows, and at last keys."""
    frame = sight.frame
    names = [printable(name) for name in names]
    rows = 0 if frame is None else len(frame.chars)
    picture = None if frame is None or frame.picture is None or rows else picture_text(frame.picture)
    rows += 0 if picture is None else picture.plain.count("\n")
    compact = height < rows + _FULL_HEIGHT
    parts: list = [] if compact else [Text(printable(title), style="bold", no_wrap=True)]
    if picture is not None:
        parts.append(picture)
    elif frame is not None:
        cursor = frame.cursor
        shown = [row for row in range(rows) if not (compact and row in frame.spare_rows)]
        if cursor is not None:
            cursor = (shown.index(cursor[0]), cursor[1]) if cursor[0] in shown else None
        parts.append(screen_text(frame.chars[shown], frame.colors[shown], cursor))
        rows = len(shown)
    if sight.text is not None:
        style = "bold green" if sight.reward is not None and sight.intrinsic > 0 else ""
        parts.append(Text(as_text(sight.text) or "(no message)", style=style, no_wrap=True))
    help_line = Text(f"{state}   {keys}", style="dim", no_wrap=True)
    if not compact:
        numbers = Table.grid(padding=(0, 3))
        numbers.add_row(_numbers(sight, totals, names), _probabilities(sight, names))
        return Group(*parts, Panel(numbers, padding=(0, 1)), help_line)
    facts = _facts(sight, totals, names)
    if height < rows + (sight.text is not None) + 2:
        return Group(*parts, Text.assemble((f"{state}  ", "dim"), facts, no_wrap=True))
    return Group(*parts, facts, help_line)


def message_tables(tallies: Sequence[MessageTally], title: str, most: int) -> list[Table]:
    """The messages of an episode by count, and with a reward also by their sum after threshold and count discount."""

    def cells(tally: MessageTally) -> tuple[str, ...]:
        paid = ("", "") if tally.reward is None else (f"{tally.reward:+.3f}", f"{tally.total:+.3f}")
        return (tally.text.replace("\\x0a", " ") or "(no message)", f"{tally.count:,}", *paid)

    rewarded = any(tally.reward is not None for tally in tallies)
    header = ("message", "times", "reward", "paid")[: 4 if rewarded else 2]
    orders = {"most frequent messages": sorted(tallies, key=lambda t: (-t.count, t.text))}
    if rewarded:
        paid = (tally for tally in tallies if tally.total)
        orders["messages that paid most"] = sorted(paid, key=lambda t: -(t.total or 0))
    tables = []
    for order, of in orders.items():
        rows = [cells(tally)[: len(header)] for tally in of[:most]]
        tables.append(text_tables.terminal(header, rows, f"{title}: {order}", text_first=True))
    return tables
