"""What somebody else wrote cannot move, colour or break the terminal of who plays."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from motif_jax.datasets.dialogues.dialogue import Dialogue
from motif_jax.envs.text.contract import Observation, Outcome
from motif_jax.envs.wordle.colours import WordTable
from motif_jax.envs.wordle.environment import WordleObservation
from motif_jax.rollouts.text_episodes import TextAction
from motif_jax.rollouts.text_terminal import Terminal, TextTable, numbers, plain, shown
from tests.recorded_outputs import compared

HOSTILE = "a\x1b]0;owned\x07\x1b[2Jb\x9b31m\rc\x7f\ud800"
TAMED = "a�]0;owned��[2Jb�31m�c��"


class _Heard(Observation):
    def __init__(self, texts: tuple[str, ...], rewards: tuple[float | None, ...]) -> None:
        self._texts, self._rewards = texts, rewards

    def to_sequence(self) -> Dialogue:
        return Dialogue(self._texts, self._rewards, len(self._texts) > 1)


class _Hostile:
    """Task, environment, tokenizer and actor in one: whatever is asked of it, it says the same."""

    def environment(self) -> Any:
        return self

    def reset(self, rng: np.random.Generator) -> Observation:
        return _Heard((HOSTILE,), (None,))

    def step(self, action: str) -> Outcome:
        return Outcome(_Heard((HOSTILE, action), (None, 1.0)), 1.0, True)

    def encode(self, text: str) -> list[int]:
        if text == "refused":
            raise ValueError(HOSTILE)
        return []

    def begin(self, games: Any) -> None:
        pass

    def act(self, observations: Any, slots: Any) -> list[TextAction]:
        return [TextAction(HOSTILE)]


@pytest.mark.parametrize(
    ("mode", "typed", "times"),
    [("with", "refused\n\n", 6), ("against", "me\n", 6), ("answer", "\n/end\n", 1)],
)
def test_what_others_say_is_shown_without_control_characters(
    mode: str, typed: str, times: int, record: bool
) -> None:
    it: Any = _Hostile()
    out = io.StringIO()
    found = TextTable(it, it, Terminal(io.StringIO(typed), out), it, 0).play(0, mode)
    said = out.getvalue()
    assert all(one.isprintable() or one == "\n" for one in said)
    assert said.count(TAMED) == times
    assert HOSTILE in found[-1]["texts"], "it is kept as it was said"
    compared(f"terminal_{mode}", {"said": said, "found": ascii(found)}, record)


def test_lines_of_a_text_stay_lines_and_guesses_keep_their_colours() -> None:
    assert plain("\u202eevil") == "\N{REPLACEMENT CHARACTER}evil"
    assert plain("one\r\ntwo\n\tthree é 猫") == "one\ntwo\n\tthree é 猫"
    said = shown(WordleObservation(WordTable(["crane"]), ("crane", HOSTILE), (0, None)))
    assert "\x1b[" in said.splitlines()[0]
    assert said.splitlines()[1] == TAMED


def test_numbers_of_a_proposal_are_shown_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    it: Any = _Hostile()
    facts = SimpleNamespace(policy=np.array([-1.25, -2]), q=np.array([3.0, 1]), v=np.array([0.5, 1.5]))
    monkeypatch.setattr(it, "act", lambda *_: [TextAction("mine", facts=facts)])
    out = io.StringIO()
    (game,) = TextTable(it, it, Terminal(io.StringIO("?\n\n"), out), it, 0).play(3, "with")
    assert game == {"texts": [HOSTILE, "mine"], "rewards": [None, 1.0], "return": 1.0}
    assert "  token 0: log pi   -1.25  Q    3.00  V    0.50  advantage   +2.50\n" in out.getvalue()
    assert "  token 1: log pi   -2.00  Q    1.00  V    1.50  advantage   -0.50\n" in out.getvalue()
    assert (out.getvalue()[:8], out.getvalue()[-10:]) == ("\ngame 3\n", "\nreturn 1\n")
    assert numbers(TextAction("")) == "(no numbers: it is not an agent's)"


def test_a_person_may_begin_a_dialogue_and_an_input_that_ends_ends_it() -> None:
    it: Any = _Hostile()
    out = io.StringIO()
    (game,) = TextTable(it, it, Terminal(io.StringIO("hello\n/end\n"), out), it, 0).play(0, "answer")
    assert game == {"texts": ["hello", HOSTILE], "rewards": [None, 0.0], "return": None}
    both = TextTable(it, it, Terminal(io.StringIO("me\n"), out), it, 0).play(0, "against")
    assert [each["texts"][1] for each in both] == ["me", HOSTILE]
    assert out.getvalue().endswith("\nyou 1, it 1: a draw\n")
    with pytest.raises(EOFError, match="the terminal was closed"):
        Terminal(io.StringIO(), out).ask("")
