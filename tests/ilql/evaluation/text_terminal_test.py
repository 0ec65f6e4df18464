"""What another side wrote cannot move, colour or break the terminal of the person who plays."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent.decoding import TokenFacts
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.evaluation.text_episodes import DialogueObservation, TextAction
from motif_jax.ilql.evaluation.text_terminal import Terminal, TextTable, numbers, plain, shown
from motif_jax.ilql.tasks.contract import Outcome, TextEnvironment, TextPolicy, TextTask
from motif_jax.ilql.tasks.wordle.environment import WordleObservation
from motif_jax.ilql.tasks.wordle.game import WordTable
from tests.toy_text import Letters, LetterTable

HOSTILE = "a\x1b]0;owned\x07\x1b[2Jb\x9b31m\rc\x7f\ud800"
PLAIN = "a�]0;owned��[2Jb�31m�c��"


class HostileEnvironment(TextEnvironment):
    """Says one hostile text, and pays the answer 1."""

    def reset(self, rng: np.random.Generator, start: Any = None) -> DialogueObservation:
        return DialogueObservation(Dialogue((HOSTILE,), (None,), False))

    def step(self, action: str) -> Outcome:
        dialogue = Dialogue((HOSTILE, action), (None, 1.0), True)
        return Outcome(DialogueObservation(dialogue), 1.0, True)


class HostileTask(TextTask):
    defaults = {}

    def tokenizer(self) -> Letters:
        return Letters()

    def environment(self) -> HostileEnvironment:
        return HostileEnvironment()

    def policy(self, name: str) -> TextPolicy:
        raise UserError(f"there is no policy {name}: the terminal plays")


class HostileActor:
    """Says the hostile text, as two tokens."""

    def begin(self, episodes: Sequence[int]) -> None: ...

    def act(self, observations: Sequence[Any], indices: Sequence[int]) -> list[TextAction]:
        ranks = np.zeros(2, np.int32)
        policy = np.array([-1.25, -2.0])
        facts: Any = TokenFacts(
            policy, policy, np.array([3.0, 1.0]), np.array([0.5, 1.5]), ranks, ranks
        )
        return [TextAction(HOSTILE, facts=facts)]


def play(
    mode: str, typed: str, tokenizer: Letters | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """What the terminal shows in game 3 while a person types `typed`, and the dialogues."""
    out = io.StringIO()
    terminal = Terminal(io.StringIO(typed), out)
    table = TextTable(HostileTask({}), HostileActor(), terminal, tokenizer or Letters(), 0)
    dialogues = table.play(3, mode)
    return out.getvalue(), dialogues


@pytest.mark.parametrize(
    ("mode", "typed"),
    [("with", "\n"), ("with", "?\n\n"), ("against", "me\n"), ("answer", "\n/end\n"), ("answer", "hello\n/end\n")],
)  # fmt: skip
def test_texts_are_shown_without_control_characters(mode: str, typed: str) -> None:
    screen, dialogues = play(mode, typed)

    assert all(character.isprintable() or character == "\n" for character in screen)
    assert PLAIN in screen
    # The dialogue itself keeps the text.
    assert HOSTILE in dialogues[-1]["texts"]


def test_a_person_takes_the_agent_s_proposal_by_enter() -> None:
    screen, dialogues = play("with", "\n")

    assert screen == (
        "\ngame 3\nEnter: say what it proposes; ?: its numbers; or type what to say\n"
        f"\n< {PLAIN}\nit would say: {PLAIN}\n> \n< {PLAIN}\n> {PLAIN}\nreturn 1\n"
    )
    assert dialogues == [{"texts": [HOSTILE, HOSTILE], "rewards": [None, 1.0], "return": 1.0}]


def test_a_question_mark_shows_the_numbers_of_the_tokens() -> None:
    screen, _ = play("with", "?\n\n")

    assert screen.count("it would say:") == 2
    assert (
        ">   token 0: log pi   -1.25  Q    3.00  V    0.50  advantage   +2.50\n"
        "  token 1: log pi   -2.00  Q    1.00  V    1.50  advantage   -0.50\n"
    ) in screen


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [(Letters(), "substring not found"), (LetterTable(), "no token for 'N'")],
)
def test_a_text_without_tokens_is_asked_for_again(tokenizer: Letters, reason: str) -> None:
    screen, dialogues = play("with", "NO\n\n", tokenizer)

    assert screen.count("it would say:") == 2
    assert reason in screen
    assert dialogues[0]["texts"] == [HOSTILE, HOSTILE]


def test_a_person_and_an_agent_play_the_same_game() -> None:
    screen, dialogues = play("against", "me\n")

    assert "\nnow it plays the same game\n" in screen
    assert screen.endswith("you 1, it 1: a draw\n")
    assert [dialogue["texts"] for dialogue in dialogues] == [[HOSTILE, "me"], [HOSTILE, HOSTILE]]


@pytest.mark.parametrize(
    ("typed", "texts"),
    [
        ("\n/end\n", [HOSTILE]),
        ("hello\n/end\n", ["hello", HOSTILE]),
        # The input ends.
        ("hello\n", ["hello", HOSTILE]),
    ],
)
def test_a_person_answers_an_agent_until_the_end(typed: str, texts: list[str]) -> None:
    screen, dialogues = play("answer", typed)

    assert screen.startswith(
        "\ngame 3\nsay something, or nothing for it to begin; /end ends the game\n"
    )
    rewards = [None] * (len(texts) - 1) + [0.0]
    assert dialogues == [{"texts": texts, "rewards": rewards, "return": None}]


def test_a_policy_has_no_numbers() -> None:
    assert numbers(TextAction("")) == "(no numbers: it is not an agent's)"


def test_lines_and_letters_of_all_languages_stay() -> None:
    assert plain("one\r\ntwo\n\tthree é 猫") == "one\ntwo\n\tthree é 猫"


def test_a_turn_of_the_line_s_direction_is_replaced() -> None:
    assert plain("\u202eevil") == "\N{REPLACEMENT CHARACTER}evil"


def test_guesses_keep_their_colours_and_lose_control_characters() -> None:
    coloured, other = shown(
        WordleObservation(WordTable(["crane"]), ("crane", HOSTILE), (0, None))
    ).splitlines()

    assert "\x1b[" in coloured
    assert other == PLAIN
