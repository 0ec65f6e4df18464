"""Renders conversations by the chat template that a model's folder brings, as transformers does
(`ChatTemplate`); writes prompts of turns by it (`write_prompts`); reads off it what stands around
each turn (`turn_texts`).

A template is a program in jinja's language and comes with a model, which is not trusted: it runs in
jinja's sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from motif_jax.core.errors import UserError, first_line
from motif_jax.core.files import atomic_write_json, atomic_write_text, read_text
from motif_jax.core.tokenizer_files import CONFIG_FILE, TOKENS_FILE, entries

TEMPLATE_FILE = "chat_template.jinja"
_REMEDY = "restore it from where the model came from"
# How the names of special tokens end, which templates write themselves (`bos_token`).
_TOKEN = "_token"
# What templates that write today's date get: a run, its agent and stored answers have the same text
# on each day. It is the date that Llama's template takes where it is given none.
_DATE = datetime(2024, 7, 26)
# Ends the text that an answer begins with, while a conversation is rendered; no text of a person
# has it.
_MARK = "\ue000continued here\ue000"

# Texts that no template has, in the order of a conversation.
_SYSTEM = "motifjaxsystem"
_FIRST_QUESTION = "motifjaxquestionone"
_FIRST_ANSWER = "motifjaxanswerone"
_SECOND_QUESTION = "motifjaxquestiontwo"
_SECOND_ANSWER = "motifjaxanswertwo"
# Values of `config.chat`: by the template where the model has one, always, or never.
AUTO = "auto"
ALWAYS = "always"
NEVER = "never"

Turn = Mapping[str, str]
# A text, or turns {"role": ..., "content": ...}.
Prompt = str | Sequence[Turn]


class ChatTemplate:
    """A chat template.

    Attributes:
      text: the template itself.
      special_tokens: what it may write by name (`bos_token`) -> the token's text.
    """

    def __init__(
        self,
        text: str,
        special_tokens: Mapping[str, str] | None = None,
        source: str = "chat template",
    ) -> None:
        self.text = text
        self._source = source
        self.special_tokens = dict(special_tokens or {})
        extensions = (loopcontrols, _GenerationTag)
        # Options and filters are those of transformers: a template writes here what it writes
        # there.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=extensions
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _DATE.strftime
        self._template = environment.from_string(text)

    def prompt(self, turns: Sequence[Turn]) -> str:
        """The text of a conversation up to where the assistant's next turn begins."""
        return self._render(turns, add_generation_prompt=True)

    def text_of(self, turns: Sequence[Turn]) -> str:
        """The text of a conversation, without the beginning of a further turn."""
        return self._render(turns, add_generation_prompt=False)

    def continued(self, turns: Sequence[Turn]) -> str:
        """The text of a conversation whose last turn is the beginning of the assistant's answer, up
        to that turn's last letter.

        Raises:
          UserError: the template leaves the beginning out.
        """
        beginning = turns[-1]["content"].strip()
        # Not found by its own text, which earlier turns and the template may hold, too.
        # Cut at the mark: what the template writes after a turn does not follow a beginning.
        marked = [*turns[:-1], {**turns[-1], "content": beginning + _MARK}]
        text, mark, _ = self.text_of(marked).partition(_MARK)
        if not mark or not text.endswith(beginning):
            raise UserError(
                f"{self._source} does not show the beginning of an answer, {beginning!r}"
            )
        return text

    def _render(self, turns: Sequence[Turn], add_generation_prompt: bool) -> str:
        # As in transformers: templates ask whether `tools is none`, which a name without a value is
        # not.
        without = {"tools": None, "documents": None}
        values = {**self.special_tokens, **without, "add_generation_prompt": add_generation_prompt}
        try:
            return self._template.render(messages=[dict(turn) for turn in turns], **values)
        # Whatever a model's program may raise: callers write their turns otherwise then.
        except Exception as error:
            remedy = ""
            if any(turn.get("role") == "system" for turn in turns):
                remedy = ": where the model takes no turn of the system, put its text into the user's first turn"
            raise UserError(
                f"{self._source} refuses the conversation: {first_line(error)}{remedy}"
            ) from None


def read(folder: str | Path) -> ChatTemplate | None:
    """The template in a model's folder: chat_template.jinja, else `chat_template` of
    tokenizer_config.json; None without one.

    Of several templates in tokenizer_config.json the one named "default" is taken. Special tokens
    that tokenizer_config.json does not name are those of special_tokens_map.json.

    Raises:
      UserError: none of several templates is named "default", or a file is damaged.
      jinja2.TemplateError: the template is not in jinja's language.
    """
    path = Path(folder) / CONFIG_FILE
    values = entries(path)
    named = {**entries(Path(folder) / TOKENS_FILE), **values}
    special_tokens = _special_tokens(named)
    template_file = Path(folder) / TEMPLATE_FILE
    if template_file.is_file():
        return ChatTemplate(read_text(template_file, _REMEDY), special_tokens, str(template_file))
    template = values.get("chat_template")
    if isinstance(template, list):
        # Of several with one name the last counts, as in transformers.
        templates = {
            entry.get("name"): entry.get("template")
            for entry in template
            if isinstance(entry, dict)
        }
        if templates and "default" not in templates:
            names = ", ".join(sorted(str(name) for name in templates))
            raise UserError(
                f"{path}: has the chat templates {names}, and none that is named default: write the one to use into {TEMPLATE_FILE}"
            )
        template = templates.get("default")
    if not isinstance(template, str):
        return None
    return ChatTemplate(template, special_tokens, f"chat_template in {path}")


def write(folder: str | Path, template: ChatTemplate) -> None:
    """Writes chat_template.jinja, and the tokens that it names into a tokenizer_config.json, such
    as `read` reads them.
    """
    atomic_write_json(Path(folder) / CONFIG_FILE, template.special_tokens)
    atomic_write_text(Path(folder) / TEMPLATE_FILE, template.text)


def _special_tokens(entries: Mapping[str, Any]) -> dict[str, str]:
    """The texts of special tokens by their names, which a file holds as texts or as objects with
    their `content`; a template asks whether a name `is defined`, as that of other entries is not.
    """
    texts = {}
    for name, value in entries.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith(_TOKEN) and isinstance(text, str):
            texts[name] = text
    return texts


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja's own filter escapes `<`, `>` and `&` for HTML, which no model was trained on."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class _GenerationTag(Extension):
    """The tag `generation` of transformers, which marks what the assistant says and changes no
    text.
    """

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


class WrittenPrompts(NamedTuple):
    """Prompts as the model reads them; `special`: with the special tokens that the tokenizer adds,
    which a template writes itself.
    """

    texts: list[str]
    special: bool


def write_prompts(prompts: Sequence[Prompt], template: ChatTemplate | None) -> WrittenPrompts:
    """The texts of prompts: plain texts as they are, or turns up to where the model's answer
    begins.

    Raises:
      UserError: one text in place of a list, texts and turns together, or turns that the template
        refuses.
    """
    require_list(prompts, "prompts")
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    turns = [prompt for prompt in prompts if not isinstance(prompt, str)]
    if not turns:
        return WrittenPrompts(texts, True)
    if texts:
        raise UserError("some prompts are texts and some are turns: give one of both in a call")
    assert template is not None, "prompts of turns need a chat template, and the model has none"
    return WrittenPrompts([template.prompt(prompt) for prompt in turns], False)


def require_list(texts: Sequence[Any], name: str) -> None:
    """Raises UserError where `texts` is one text: its letters would be taken for texts."""
    if isinstance(texts, str):
        raise UserError(f"{name} is one text: must be a list of texts, such as [{texts[:20]!r}]")


def in_words(chat: str, template: ChatTemplate | None, key: str) -> str:
    """One line: how the prompts are written, by the value `chat` of the config's `key`."""
    if chat == NEVER:
        return f"prompts: plain text, as they are (config.{key}={NEVER})"
    if template is None:
        return "prompts: plain text, as they are (the model has no chat template)"
    return f"prompts: turns by the model's own chat template (config.{key}={NEVER}: plain text)"


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


def turn_texts(template: ChatTemplate) -> TurnTexts:
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
    _require_one_form(
        second_to_answer == question_to_answer, "the second answer begins otherwise than the first"
    )

    prompt = template.prompt([question])
    _require_one_form(
        prompt == before + _FIRST_QUESTION + question_to_answer,
        "a prompt does not end as a conversation before an answer does",
    )
    closed_question = template.text_of([question])
    _require_one_form(
        closed_question.startswith(before + _FIRST_QUESTION), "a lone question begins otherwise"
    )
    # What ends a question is known from one without an answer; the rest of what stands between is
    # the answer's opening.
    user_close = closed_question.removeprefix(before + _FIRST_QUESTION)
    _require_one_form(question_to_answer.startswith(user_close), "a lone question ends otherwise")
    _require_one_form(
        answer_to_question.startswith(assistant_close),
        "the last answer does not end as the first one does",
    )
    # What is common to the first question and the second is a turn's opening; the rest before the
    # first is `begin`.
    user_open = answer_to_question.removeprefix(assistant_close)
    _require_one_form(
        before.endswith(user_open), "the first question does not begin as the second one does"
    )

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
    _require_one_form(marker in text, "the text of a turn is left out")
    before, _, after = text.partition(marker)
    return before, after


def _require_one_form(holds: bool, reason: str) -> None:
    if not holds:
        raise UserError(f"its chat template has no one form of a turn: {reason}")
