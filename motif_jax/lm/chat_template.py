"""Renders conversations by the chat template that a model's folder brings, as transformers does.

A template is a program in jinja's language and comes with a model, which is not trusted: it runs in
jinja's sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

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

Turn = Mapping[str, str]


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
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateError as error:
            raise UserError(f"{source} is not a jinja template: {first_line(error)}") from None

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
        except Exception as error:  # whatever a model's program may raise
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
      UserError: a file is damaged, a template is not in jinja's language, or none of several is
          named "default".
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
