"""What a chat template writes around each turn, read off conversations of marker texts that it
renders.
"""

from __future__ import annotations

from typing import NamedTuple

from motif_jax.core.errors import UserError
from motif_jax.lm.chat_template import ChatTemplate, Turn

# Texts that no template has, in the order of a conversation.
_SYSTEM = "motifjaxsystem"
_FIRST_QUESTION = "motifjaxquestionone"
_FIRST_ANSWER = "motifjaxanswerone"
_SECOND_QUESTION = "motifjaxquestiontwo"
_SECOND_ANSWER = "motifjaxanswertwo"


class TurnTexts(NamedTuple):
    """A conversation is `begin`, then for each turn its opening, its text and its closing.

    Attributes:
      begin: before the first turn, such as a beginning-of-text token and a system prompt.
      strips: the template takes blanks off both ends of a text.
    """

    begin: str
    user_open: str
    user_close: str
    assistant_open: str
    assistant_close: str
    strips: bool


def derive(template: ChatTemplate) -> TurnTexts:
    """The texts around turns, which are the same wherever a turn stands.

    Raises:
      UserError: the template refuses a plain conversation, or writes a turn in more than one way.
    """
    question = _turn("user", _FIRST_QUESTION)
    answer = _turn("assistant", _FIRST_ANSWER)
    conversation = [
        question,
        answer,
        _turn("user", _SECOND_QUESTION),
        _turn("assistant", _SECOND_ANSWER),
    ]

    # Two questions and two answers show what stands between them, in both orders.
    before, text = _cut(template.text_of(conversation), _FIRST_QUESTION)
    question_to_answer, text = _cut(text, _FIRST_ANSWER)
    answer_to_question, text = _cut(text, _SECOND_QUESTION)
    second_to_answer, assistant_close = _cut(text, _SECOND_ANSWER)
    _require(
        second_to_answer == question_to_answer, "the second answer begins otherwise than the first"
    )

    prompt = template.prompt([question])
    _require(
        prompt == before + _FIRST_QUESTION + question_to_answer,
        "a prompt does not end as a conversation before an answer does",
    )
    closed_question = template.text_of([question])
    _require(
        closed_question.startswith(before + _FIRST_QUESTION), "a lone question begins otherwise"
    )
    # What ends a question is known from one without an answer; the rest of what stands between is
    # the answer's opening.
    user_close = closed_question.removeprefix(before + _FIRST_QUESTION)
    _require(question_to_answer.startswith(user_close), "a lone question ends otherwise")
    _require(
        answer_to_question.startswith(assistant_close),
        "the last answer does not end as the first one does",
    )
    # What is common to the first question and the second is a turn's opening; the rest before the
    # first is `begin`.
    user_open = answer_to_question.removeprefix(assistant_close)
    _require(before.endswith(user_open), "the first question does not begin as the second one does")

    return TurnTexts(
        begin=before.removesuffix(user_open),
        user_open=user_open,
        user_close=user_close,
        assistant_open=question_to_answer.removeprefix(user_close),
        assistant_close=assistant_close,
        strips=f" {_FIRST_QUESTION} "
        not in template.text_of([_turn("user", f" {_FIRST_QUESTION} ")]),
    )


def before_system(template: ChatTemplate, turns: TurnTexts) -> str:
    """What stands before a system message that begins a conversation, and ends as a turn of the
    user does.

    '' where the template refuses one, or writes it into the user's turn.
    """
    conversation = [
        _turn("system", _SYSTEM),
        _turn("user", _FIRST_QUESTION),
        _turn("assistant", _FIRST_ANSWER),
    ]
    try:
        before, text = _cut(template.text_of(conversation), _SYSTEM)
    except UserError:
        return ""
    is_apart = text.startswith(turns.user_close + turns.user_open + _FIRST_QUESTION)
    return before if is_apart else ""


def around_prompt(template: ChatTemplate) -> tuple[str, str]:
    """What stands before the text of a conversation's only turn, and after it up to where the
    answer begins.
    """
    return _cut(template.prompt([_turn("user", _FIRST_QUESTION)]), _FIRST_QUESTION)


def after_answer(template: ChatTemplate) -> str:
    """What stands after the assistant's answer that ends a conversation of two turns."""
    conversation = [_turn("user", _FIRST_QUESTION), _turn("assistant", _FIRST_ANSWER)]
    return _cut(template.text_of(conversation), _FIRST_ANSWER)[1]


def _turn(role: str, text: str) -> Turn:
    return {"role": role, "content": text}


def _cut(text: str, marker: str) -> tuple[str, str]:
    """What stands before and after a marker."""
    _require(marker in text, "the text of a turn is left out")
    before, _, after = text.partition(marker)
    return before, after


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise UserError(f"its chat template has no one form of a turn: {reason}")
