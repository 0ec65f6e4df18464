"""The page of an evaluation's first games: dialogues by token, with policy and values of each
token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.display import token_page
from motif_jax.display.token_page import TokenText
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import TextTokenizer

# Names of the rows.
_POLICY = "log π (nats)"
_STEERED = "log p of the draw (nats)"
_Q = "Q"
_V = "V"
_A = "advantage Q − V"
# Colours in tasks' texts -> kind of `TokenText.kinds`.
_COLOURS = {"<g>": "here", "<y>": "elsewhere", "<b>": "absent"}
_MARK = 3  # characters of a colour


def dialogue_of(row: Mapping[str, Any]) -> Dialogue:
    """The dialogue of a row of the journal."""
    written = row["dialogue"]
    rewards = tuple(None if reward is None else float(reward) for reward in written["rewards"])
    return Dialogue(
        tuple(written["texts"]), rewards, bool(written["terminal"]), {"index": row["index"]}
    )


def dialogue_entry(dialogue: Dialogue) -> dict[str, Any]:
    """The part of a row that is the dialogue, JSON-able."""
    return {
        "dialogue": {
            "texts": list(dialogue.texts),
            "rewards": list(dialogue.rewards),
            "terminal": dialogue.terminal,
        }
    }


def token_row(
    tokenizer: TextTokenizer,
    tokens: Sequence[int],
    numbers: Mapping[str, np.ndarray],
    by_policy: Sequence[int] = (),
    by_values: Sequence[int] = (),
) -> dict[str, Any]:
    """The numbers (steered, policy, q and v, float [M] each) of an action's tokens for a journal,
    JSON-able.

    `by_policy` and `by_values` are tokens [M] that the policy and the values alone would have
    taken, () if that is not known.
    """

    def pieces(tokens: Sequence[int]) -> list[str]:
        return [tokenizer.decode([token]) for token in tokens]

    def rounded(values: np.ndarray) -> list[float]:
        return [float(f"{value:.5g}") for value in values.tolist()]

    unknown = [""] * len(tokens)
    return {
        "pieces": pieces(tokens),
        **{name: rounded(values) for name, values in numbers.items()},
        "by_policy": pieces(by_policy) or unknown,
        "by_values": pieces(by_values) or unknown,
    }


def render(rows: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> str:
    """The page of `rows` of the journal; `plan` names the speakers."""
    texts = [text_of(row, bool(plan.get("values"))) for row in rows]
    speaker = plan["policy"]
    decode = plan.get("decode")
    if decode is not None:
        speaker += ", " + ", ".join(f"{key} {value}" for key, value in decode.items())
    subtitle = f"{speaker}; seed {plan['seed']}"
    return token_page.render(texts, f"{plan['environment']}, token by token", subtitle)


class _Piece(NamedTuple):
    """A token, or a text whose tokens are unknown; `words`: the likeliest tokens by the policy and
    by the values.
    """

    text: str
    kind: str = ""
    numbers: Mapping[str, float] = {}
    words: Sequence[str] = ("", "")


def text_of(row: Mapping[str, Any], values: bool = True) -> TokenText:
    """One game for `token_page`; actions are split and coloured if the row has their tokens and
    colours.
    """
    pieces = _pieces(row)
    note = f"return {dialogue_of(row).total:g}, {row['length']} actions"
    if row.get("success") is not None:
        note += ", won" if row["success"] else ", lost"
    if "divergence" in row:
        note += f"; divergence from the policy {row['divergence']:.2f} nats"
    text = TokenText(
        f"Game {row['index']}",
        [piece.text for piece in pieces],
        {},
        note=note,
        kinds=[piece.kind for piece in pieces],
    )
    if not any(piece.numbers for piece in pieces):
        return text
    names = (_A, _Q, _V, _POLICY, _STEERED) if values else (_POLICY, _STEERED)
    words = {"policy alone": [piece.words[0] for piece in pieces]}
    if values:
        words["values alone"] = [piece.words[1] for piece in pieces]
    return text._replace(
        rows={name: [piece.numbers.get(name, np.nan) for piece in pieces] for name in names},
        under=(_POLICY, _Q, _V, _A) if values else (_POLICY,),
        words=words,
    )


def _pieces(row: Mapping[str, Any]) -> list[_Piece]:
    """The texts of a dialogue; actions by tokens where the row has them, else by letters where they
    have colours.
    """
    dialogue = dialogue_of(row)
    tokens_of_actions = iter(row.get("tokens", ()))
    following_texts = [*dialogue.texts[1:], ""]
    pieces: list[_Piece] = []
    for text, reward, following in zip(
        dialogue.texts, dialogue.rewards, following_texts, strict=True
    ):
        if reward is not None:  # an action
            turn = _action_pieces(text, next(tokens_of_actions, None), _colours(following))
        elif _colours(text):  # shown as the colours of the action before
            turn = []
        else:
            turn = [_Piece(text, "before")]
        if pieces and turn:
            # Each utterance starts a line of the page.
            turn[0] = turn[0]._replace(kind=f"{turn[0].kind} begins".strip())
        pieces += turn
    return pieces


def _action_pieces(text: str, tokens: Mapping[str, Any] | None, colours: list[str]) -> list[_Piece]:
    if tokens is not None:
        pieces = _tokens(tokens)
    elif colours:
        pieces = [_Piece(letter) for letter in text]
    else:
        pieces = [_Piece(text)]
    # Wordle's tokens are letters: the first ones have the colours.
    coloured = [piece._replace(kind=colour) for piece, colour in zip(pieces, colours, strict=False)]
    return coloured + pieces[len(coloured) :]


def _tokens(tokens: Mapping[str, Any]) -> list[_Piece]:
    """The pieces of an action by the columns of its tokens."""
    names = ("pieces", "q", "v", "policy", "steered", "by_policy", "by_values")
    columns = [tokens[name] for name in names]
    pieces = []
    for piece, q, v, policy, steered, *words in zip(*columns, strict=False):
        numbers = {_A: q - v, _Q: q, _V: v, _POLICY: policy, _STEERED: steered}
        pieces.append(_Piece(piece, "", numbers, words))
    return pieces


def _colours(text: str) -> list[str]:
    """The kinds of a row of colours such as '<b><y><g>'; [] of any other text."""
    marks = [text[start : start + _MARK] for start in range(0, len(text), _MARK)]
    if not all(mark in _COLOURS for mark in marks):
        return []
    return [_COLOURS[mark] for mark in marks]
