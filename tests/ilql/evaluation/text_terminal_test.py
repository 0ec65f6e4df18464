"""What somebody else wrote cannot move, colour or break the terminal of who plays."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.evaluation.text_episodes import TextAction
from motif_jax.ilql.evaluation.text_terminal import Terminal, TextTable, numbers, plain, shown
from motif_jax.ilql.tasks.contract import Observation, Outcome
from motif_jax.ilql.tasks.wordle.colours import WordTable
from motif_jax.ilql.tasks.wordle.environment import WordleObservation
from tests.recorded_outputs import assert_matches_packed_recording

HOSTILE = "a\x1b]0;owned\x07\x1b[2Jb\x9b31m\rc\x7f\ud800"
TAMED = "a�]0;owned��[2Jb�31m�c��"


def _heard(texts: tuple[str, ...], rewards: tuple[float | None, ...]) -> Any:
    return SimpleNamespace(to_sequence=lambda: Dialogue(texts, rewards, len(texts) > 1))


class _Hostile:
    """Task, environment, tokenizer and actor in one: whatever is asked of it, it says the same."""

    def environment(self) -> Any:
        return self

    def reset(self, rng: np.random.Generator) -> Observation:
        return _heard((HOSTILE,), (None,))

    def step(self, action: str) -> Outcome:
        return Outcome(_heard((HOSTILE, action), (None, 1.0)), 1.0, True)

    def encode(self, text: str) -> list[int]:
        if text == "refused":
            raise ValueError(HOSTILE)
        return []

    def begin(self, games: Any) -> None: ...

    def act(self, observations: Any, slots: Any) -> list[TextAction]:
        given = {"policy": [-1.25, -2], "q": [3.0, 1], "v": [0.5, 1.5]}
        facts: Any = SimpleNamespace(**{name: np.array(numbers) for name, numbers in given.items()})
        return [TextAction(HOSTILE, facts=facts)]


GAMES = {"refused": ("with", "refused\n\n"), "numbers": ("with", "?\n\n"), "against": ("against", "me\n")}
GAMES |= {"answer": ("answer", "\n/end\n"), "begins": ("answer", "hello\n/end\n")}


def test_what_others_say_is_shown_without_control_characters(record: bool) -> None:
    it: Any = _Hostile()
    parts = dict[str, str]()
    for name, (mode, typed) in GAMES.items():
        out = io.StringIO()
        found = TextTable(it, it, Terminal(io.StringIO(typed), out), it, 0).play(3, mode)
        assert all(one.isprintable() or one == "\n" for one in out.getvalue())
        assert TAMED in out.getvalue()
        assert HOSTILE in found[-1]["texts"], "it is kept as it was said"
        parts[name] = f"{out.getvalue()}{found!a}"
    assert_matches_packed_recording("terminal", parts, record)
    with pytest.raises(EOFError, match="the terminal was closed"):
        Terminal(io.StringIO(), out).ask("")
    assert numbers(TextAction("")) == "(no numbers: it is not an agent's)"


def test_lines_of_a_text_stay_lines_and_guesses_keep_their_colours() -> None:
    assert plain("\u202eevil") == "\N{REPLACEMENT CHARACTER}evil"
    assert plain("one\r\ntwo\n\tthree é 猫") == "one\ntwo\n\tthree é 猫"
    said = shown(WordleObservation(WordTable(["crane"]), ("crane", HOSTILE), (0, None)))
    assert "\x1b[" in said.splitlines()[0]
    assert said.splitlines()[1] == TAMED
