"""One episode as a self-contained HTML player with a timeline, rewards and values."""

from __future__ import annotations

import base64
import zlib
from html import escape
from typing import Any

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.display import html
from motif_jax.play.films.movie import BACK, COLOURS
from motif_jax.play.messages import as_text
from motif_jax.play.watching import Film

_ENDS = {0: "the recording ends", 1: "the game ended", 2: "step limit"}
# Id, text and title of each button.
_BUTTONS = (
    ("restart", "|<", "to the start (Home)"),
    ("previous", "< reward", "previous rewarded moment (P)"),
    ("back", "-1", "one step back (Left)"),
    ("play", "play", "play or pause (Space)"),
    ("forward", "+1", "one step forward (Right)"),
    ("next", "reward >", "next rewarded moment (N)"),
    ("finish", ">|", "to the end (End)"),
)


def _pack(array: np.ndarray) -> str:
    """Deflated bytes as base64; the page inflates them with the browser's DecompressionStream."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()


def _changes(frames: np.ndarray) -> np.ndarray:
    """Each frame xor the one before, mostly zeros: a game of 5,000 steps takes 0.5 MB."""
    frames = np.ascontiguousarray(frames).view(np.uint8)
    changed = frames.copy()
    changed[1:] ^= frames[:-1]
    return changed


def _floats(array: np.ndarray | None, digits: int = 4) -> list[float | None] | None:
    if array is None:
        return None
    return [round(float(v), digits) if np.isfinite(v) else None for v in np.ravel(array)]


def _distinct(texts: list[str]) -> dict[str, list[Any]]:
    """The distinct texts, and the index of each one of `texts` among them."""
    number_of: dict[str, int] = {}
    index = [number_of.setdefault(text, len(number_of)) for text in texts]
    return {"texts": list(number_of), "index": index}


def player_data(film: Film) -> dict[str, Any]:
    """The data for the page's script; numbers are rounded to 4 digits."""
    has_characters = bool(film.chars.size) and not film.pictures
    data: dict[str, Any] = {
        "steps": len(film),
        "rows": film.chars.shape[1],
        "columns": film.chars.shape[2],
        "chars": _pack(_changes(film.chars)) if has_characters else "",
        "colors": _pack(_changes(film.colors)) if has_characters else "",
        "colours": [BACK, *COLOURS],
        "cursor": film.cursor.ravel().tolist(),
        "actions": film.actions.tolist(),
        "actionNames": list(film.action_names),
        "taskRewards": _floats(film.task_rewards),
        "raw": _floats(film.raw),
        "normalised": _floats(film.normalised),
        "intrinsic": _floats(film.intrinsic),
        "values": _floats(film.values),
        "texts": [as_text(text) for text in film.texts],
        "textIndex": film.text_index.tolist(),
        "textCount": film.text_count.tolist(),
        "vitals": {name: values.tolist() for name, values in film.vitals.items()},
        "end": _ENDS[film.end],
        "notes": {name: _distinct(texts) for name, texts in film.notes.items()},
    }
    if film.pictures is not None:
        # Sentences of a grid world: one per line, in any language.
        data["texts"] = [text_bytes.decode(text.rstrip(b"\0")) for text in film.texts]
        data["pictures"] = _distinct(
            [base64.b64encode(picture).decode() for picture in film.pictures]
        )
    if film.probabilities is not None:
        data["probabilities"] = _pack(np.round(film.probabilities * 255).astype(np.uint8))
    return data


def _note(name: str, film: Film) -> str:
    if name not in film.notes:
        return ""
    if name == "mission":
        return '<p class="mission" id="note-mission"></p>'
    return (
        f'<section class="keys"><details open><summary>{escape(name)}</summary><pre class="note" id="note-{escape(name)}"></pre>'
        "</details></section>"
    )


def _screen(film: Film) -> str:
    if film.pictures is not None:
        return '<div class="screenbox"><img id="picture" alt="what the environment shows"></div>'
    if film.chars.size:
        return '<div class="screenbox"><pre id="screen" role="img" aria-label="the game\'s screen"></pre></div>'
    return html.nothing("this environment has no screen")


def render(film: Film) -> str:
    """The page."""
    total = film.info.get("return", float(film.task_rewards.sum()))
    facts = [film.task, f"seed {film.seed}", f"{len(film.actions):,} steps", f"return {total:.4g}"]
    if film.intrinsic is not None:
        facts.append(f"intrinsic return {float(film.intrinsic.sum()):.4g}")
    controls = "".join(
        f'<button type="button" id="{name}" title="{escape(title)}">{escape(text)}</button>'
        for name, text, title in _BUTTONS
    )
    speeds = "".join(
        f'<option value="{rate}"{" selected" if rate == 10 else ""}>{rate} / s</option>'
        for rate in (2, 5, 10, 30, 60, 240)
    )
    body = (
        f'<section class="stage">{_note("mission", film)}{_screen(film)}<p id="message" aria-live="off"></p>'
        f'<div class="controls">{controls}<label>speed <select id="speed">{speeds}</select></label></div>'
        '<input type="range" id="seek" min="0" value="0" aria-label="step">'
        '<figure><svg id="timeline" class="chart" role="img" aria-label="intrinsic reward and value over the episode">'
        '</svg><div class="legend" id="legend"></div></figure></section>'
        '<section class="numbers"><div id="facts"></div><div id="probabilities"></div></section>'
        f'{_note("prompt", film)}<section class="moments"><h2>rewarded moments</h2><div class="scroll list" id="moments"></div></section>'
        '<section class="keys"><p class="explain">Keys: Space play or pause, Left and Right one step, with Shift ten, '
        "N and P next and previous rewarded moment, Up and Down speed, Home and End.</p></section>"
    )
    after = (
        f"<style>{html.asset('player.css')}</style>{html.embed_json(player_data(film), 'film')}"
        f"<script>{html.asset('player.js')}</script>"
    )
    return html.page(
        film.title, " · ".join(facts), f'<div class="player">{body}</div>', after=after
    )
