"""The page of an evaluation's first games: dialogues by token, with policy and values of each token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np

from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.reports import token_page
from motif_jax.reports.token_page import TokenText

_POLICY, _STEERED = "log π (nats)", "log p of the draw (nats)"
_Q, _V, _A = "Q", "V", "advantage Q − V"
# Colours in tasks' texts -> kind of `TokenText.kinds`.
_COLOURS = {"<g>": "here", "<y>": "elsewhere", "<b>": "absent"}
_MARK = 3


def dialogue_of(row: Mapping[str, Any]) -> Dialogue:
    """The dialogue of a row of the journal."""
    given = row["dialogue"]
    rewards = tuple(None if reward is None else float(reward) for reward in given["rewards"])
    return Dialogue(tuple(given["texts"]), rewards, bool(given["terminal"]), {"index": row["index"]})


def render(rows: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> str:
    """The page of `rows` of the journal; `plan` names the speakers."""
    texts = [text_of(row, bool(plan.get("values"))) for row in rows]
    decode = plan.get("decode")
    how = "" if decode is None else ", " + ", ".join(f"{key} {value}" for key, value in decode.items())
    subtitle = f"{plan['policy']}{how}; seed {plan['seed']}"
    return token_page.render(texts, f"{plan['environment']}, token by token", subtitle)


class _Piece(NamedTuple):
    text: str
    kind: str = ""
    numbers: Mapping[str, float] = {}
    words: Sequence[str] = ("", "")


def text_of(row: Mapping[str, Any], values: bool = True) -> TokenText:
    """One game for `token_page`; actions are split and coloured if the row has their tokens and colours."""
    dialogue, said = dialogue_of(row), iter(row.get("tokens", ()))
    pieces: list[_Piece] = []
    following_texts = [*dialogue.texts[1:], ""]
    for text, reward, following in zip(dialogue.texts, dialogue.rewards, following_texts, strict=True):
        turn = [] if _colours(text) else [_Piece(text, "before")]
        if reward is not None:
            action, colours = next(said, None), _colours(following)
            letters = [_Piece(letter) for letter in (text if colours else [text])]
            kinds = chain(colours, repeat(""))
            turn = letters if action is None else _tokens(action)
            turn = [piece._replace(kind=kind) for piece, kind in zip(turn, kinds, strict=False)]
        if pieces and turn:
            turn[0] = turn[0]._replace(kind=f"{turn[0].kind} begins".strip())
        pieces += turn
    won = {1.0: ", won", 0.0: ", lost"}.get(row.get("success"), "")  # type: ignore[arg-type]
    note = f"return {dialogue.total:g}, {row['length']} actions{won}"
    if "divergence" in row:
        note += f"; divergence from the policy {row['divergence']:.2f} nats"
    title, texts, shown = f"Game {row['index']}", [one.text for one in pieces], [one.kind for one in pieces]
    if not any(one.numbers for one in pieces):
        return TokenText(title, texts, {}, note=note, kinds=shown)
    names = (_A, _Q, _V, _POLICY, _STEERED) if values else (_POLICY, _STEERED)
    rows = {name: [one.numbers.get(name, np.nan) for one in pieces] for name in names}
    alone = ("policy alone", "values alone") if values else ("policy alone",)
    words = {name: [one.words[place] for one in pieces] for place, name in enumerate(alone)}
    under = (_POLICY, _Q, _V, _A) if values else (_POLICY,)
    return TokenText(title, texts, rows, note=note, kinds=shown, under=under, words=words)


def _tokens(said: Mapping[str, Any]) -> list[_Piece]:
    columns = (said[name] for name in ("pieces", "q", "v", "policy", "steered", "by_policy", "by_values"))
    return [
        _Piece(piece, "", {_A: q - v, _Q: q, _V: v, _POLICY: policy, _STEERED: steered}, words)
        for piece, q, v, policy, steered, *words in zip(*columns, strict=False)
    ]


def _colours(text: str) -> list[str]:
    """The kinds of a row of colours such as '<b><y><g>'; [] of any other text."""
    marks = [text[i : i + _MARK] for i in range(0, len(text), _MARK)]
    return [_COLOURS[mark] for mark in marks] if text and all(mark in _COLOURS for mark in marks) else []
