"""Builds self-contained HTML pages, which fetch nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Any, NamedTuple

from motif_jax.core.files import finite

# Only inline scripts, styles and images: a page never uses the network.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
# Shown as escapes: control characters, marks that turn the direction of text, and surrogates.
_UNSHOWN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@cache
def asset(name: str) -> str:
    """A text file that comes with this package."""
    return resources.files("motif_jax.display").joinpath("assets", name).read_text(encoding="utf-8")


class TableCell(NamedTuple):
    """A table cell: a text and a small note below it, both escaped; `value` sorts the column,
    `code` is for the game's text.

    `link` is where the text leads: a path relative to the page, unescaped.
    """

    text: str
    value: float | None = None
    code: bool = False
    note: str = ""
    link: str = ""


def number_cell(value: float | None, form: str) -> TableCell:
    """A cell with `value` in the format `form`; an empty cell for None; what is not finite is
    sorted below all numbers.
    """
    if value is None:
        return TableCell("")
    # The page sorts by the number in `data-value`; scripts take 'inf' for none.
    if not math.isfinite(value):
        return TableCell("–", -1e300)
    return TableCell(format(value, form), float(value))


def message_cell(text: str) -> TableCell:
    """A cell with a game's message."""
    return TableCell(text or "(no message)", code=True)


def embed_json(value: Any, name: str) -> str:
    """A script element with `value` as data, escaped so that no text can end the element."""
    text = json.dumps(finite(value), allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{escape(name)}">{text}</script>'


def numbers(values: Iterable[float], digits: int) -> list[float | None]:
    """Values for JSON, rounded to `digits` significant digits; None if not finite."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]


def nothing(reason: str) -> str:
    """A box that gives the reason for missing content."""
    return f'<div class="empty">{escape(reason)}</div>'


def tiles(items: Sequence[tuple[str, str, str]]) -> str:
    """A row of numbers from (label, value, note)."""
    boxes = (
        f'<div class="tile"><div class="name">{escape(label)}</div><div class="value">{escape(value)}</div>'
        f'<div class="note">{escape(note)}</div></div>'
        for label, value, note in items
    )
    return f'<div class="tiles">{"".join(boxes)}</div>'


def figure(title: str, chart: str, caption: str = "") -> str:
    """A titled chart."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure><h3>{escape(title)}</h3>{chart}{below}</figure>"


def grid(*figures: str) -> str:
    """Places figures side by side if there is room."""
    return f'<div class="grid">{"".join(figures)}</div>'


def verdict(text: str, kind: str = "") -> str:
    """A highlighted sentence; `kind` is '', 'good' or 'bad'."""
    return f'<p class="verdict {kind}">{escape(text)}</p>'


def details(summary: str, text: str) -> str:
    """Preformatted text that opens on a click."""
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def page(
    title: str,
    subtitle: str,
    sections: str,
    menu: str = "",
    after: str = "",
) -> str:
    """The whole page; `menu` stands below the heading, `after` follows the page's script."""
    text = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{asset('page.css')}</style></head><body><header><h1>{escape(title)}</h1>"
        f'<p class="subtitle">{escape(subtitle)}</p><nav>{menu}</nav></header><main>{sections}</main>'
        f"<script>{asset('page.js')}</script>{after}</body></html>\n"
    )
    return _UNSHOWN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
