"""A page of texts by token, with log-probability, entropy, values and advantages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from motif_jax.display import html, page
from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, number_cell
from motif_jax.display.page import Fold, Section, Table

# A text with more tokens has a table that opens in part.
SHOWN = 50
# More texts than this have no menu.
_MENU = 12
# How a token that ends a line is shown; the line does end there.
_LINE_END = "⏎"
_BEGINS = "begins"


class TokenText(NamedTuple):
    """One text by tokens, `pieces`, of which the prompt's, before `start`, are drawn fainter.

    `rows`: name with unit -> a number per token, or NaN; the first one colours the tokens. `kinds`:
    a style of `tokens.css` per token: here, elsewhere, absent (Wordle's colours), before (said by
    others); with 'begins' it starts a line. `under` names rows whose numbers stand below each
    token, `words` has texts that do.
    """

    title: str
    pieces: Sequence[str]
    rows: Mapping[str, Sequence[float] | np.ndarray]
    start: int = 0
    note: str = ""
    kinds: Sequence[str] = ()
    under: Sequence[str] = ()
    words: Mapping[str, Sequence[str]] = {}


def render(texts: Sequence[TokenText], title: str, subtitle: str) -> str:
    """The page of the texts, in order."""
    names = list(dict.fromkeys(name for text in texts for name in text.rows))
    scales = {
        name: _scale([text.rows[name] for text in texts if name in text.rows]) for name in names
    }
    sections = [_section(text, f"text-{number}", scales) for number, text in enumerate(texts)]
    before = [f"<style>{html.asset('tokens.css')}</style>", _chooser(scales), _legend(texts)]
    if not texts:
        before.append(html.nothing("no text"))
    # The script comes last since it reads the elements above.
    after = f"{html.embed_json({'scales': scales}, 'token-scales')}<script>{html.asset('tokens.js')}</script>"
    return page.render(title, subtitle, sections, "".join(before), after, menu=len(texts) <= _MENU)


def _scale(rows: Sequence[Sequence[float] | np.ndarray]) -> float:
    """The number that has the full colour: the largest absolute one of all texts, so that colours
    compare.
    """
    values = np.abs(np.concatenate([np.asarray(row, float) for row in rows]))
    values = values[np.isfinite(values)]
    return float(f"{values.max():.6g}") if len(values) and values.max() > 0 else 1.0


def _chooser(scales: Mapping[str, float]) -> str:
    if not scales:
        return ""
    choices = "".join(f"<option>{escape(name)}</option>" for name in scales)
    full = next(iter(scales.values()))
    return (
        f'<div class="tools tokens-tools"><label>colour: <select id="token-row">{choices}</select></label>'
        f'<span class="key-bar"><span class="below" id="token-low">{-full:.4g}</span><i></i><span class="above" id="token-high">'
        f"{full:.4g}</span></span></div>"
    )


def _section(text: TokenText, name: str, scales: Mapping[str, float]) -> Section:
    colouring_row = next(iter(text.rows), None)
    spans = "".join(_token(text, index, colouring_row, scales) for index in range(len(text.pieces)))
    stacked = " stacks" if text.under or text.words or text.kinds else ""
    tokens = f'<div class="tokens{stacked}" id="{name}-tokens">{spans}</div>'
    parts: list[Any] = [tokens if spans else html.nothing("no tokens")]
    if text.rows and text.pieces:
        indices = np.arange(len(text.pieces))
        curves = [
            Plot(key, "token", key, [Series("", indices, np.asarray(row, float))])
            for key, row in text.rows.items()
        ]
        numbers = {key: html.numbers(row, 6) for key, row in text.rows.items()}
        parts.append(Fold("curves", curves))
        parts.append(Fold("all numbers", [_table(text, name)]))
        parts.append(html.embed_json(numbers, f"{name}-data"))
    return Section(text.title, name, parts, text.note)


def _token(
    text: TokenText, index: int, colouring_row: str | None, scales: Mapping[str, float]
) -> str:
    """One token as HTML, coloured by its number in `colouring_row`."""
    classes = ["token"]
    style = ""
    if index < text.start:
        classes.append("before")
    if colouring_row is not None:
        value = float(text.rows[colouring_row][index])
        if np.isfinite(value):
            classes.append("below" if value < 0 else "above")
            style = f' style="--share:{min(1.0, abs(value) / scales[colouring_row]):.3f}"'
    kinds = text.kinds[index].split() if text.kinds else []
    classes += [kind for kind in kinds if kind != _BEGINS]
    turn = '<i class="turn"></i>' if _BEGINS in kinds and index else ""
    content = escape(text.pieces[index].replace("\n", f"{_LINE_END}\n")) or "∅"
    below = _below(text, index)
    if below:
        classes.append("stack")
        content = f"<b>{content}</b>{below}"
    # tokens.js reads data-place.
    return f'{turn}<span class="{" ".join(classes)}" tabindex="0" data-place="{index}"{style}>{content}</span>'


def _below(text: TokenText, index: int) -> str:
    """What stands below a token: the numbers of `under` and the texts of `words`; '' where it has
    none of them.
    """
    numbers = {name: float(text.rows[name][index]) for name in text.under}
    words = {name: texts[index] for name, texts in text.words.items()}
    if not any(np.isfinite(number) for number in numbers.values()) and not any(words.values()):
        return ""
    lines = []
    for name, number in numbers.items():
        content = f"{number:.2f}" if np.isfinite(number) else "–"
        lines.append(f'<i title="{escape(name)}">{content}</i>')
    for name, word in words.items():
        lines.append(f'<i class="word" title="{escape(name)}">{escape(word) or "–"}</i>')
    return "".join(lines)


def _legend(texts: Sequence[TokenText]) -> str:
    names = ", ".join(dict.fromkeys(name for text in texts for name in (*text.under, *text.words)))
    return names and f'<p class="soft">below each token, from above: {escape(names)}</p>'


def _table(text: TokenText, name: str) -> Table:
    rows = []
    for index, piece in enumerate(text.pieces):
        cells = [
            TableCell(str(index), index),
            TableCell(piece.replace("\n", _LINE_END) or "∅", code=True),
        ]
        cells += [number_cell(float(row[index]), ".4g") for row in text.rows.values()]
        cells += [TableCell(row[index], code=True) for row in text.words.values()]
        rows.append(cells)
    return Table(f"{name}-table", ["token", "text", *text.rows, *text.words], rows, limit=SHOWN)
