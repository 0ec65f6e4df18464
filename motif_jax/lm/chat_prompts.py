"""Prompts of a chat model: turns of a conversation, which its own template writes, or plain
text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from motif_jax.core.errors import UserError
from motif_jax.lm.chat_template import ChatTemplate, Turn

# Values of `config.chat`: by the template where the model has one, always, or never.
AUTO = "auto"
ALWAYS = "always"
NEVER = "never"
# A text, or turns {"role": ..., "content": ...}.
Prompt = str | Sequence[Turn]


class WrittenPrompts(NamedTuple):
    """Prompts as the model reads them; `special`: with the special tokens that the tokenizer adds,
    which a template writes itself.
    """

    texts: list[str]
    special: bool


def write(prompts: Sequence[Prompt], template: ChatTemplate | None) -> WrittenPrompts:
    """The texts of prompts: plain texts as they are, or turns up to where the model's answer
    begins.

    Raises:
      UserError: one text or one conversation in place of a list, turns without a template, turns
        that it refuses, or texts and turns together.
    """
    require_list(prompts, "prompts")
    # One conversation, [{"role": ...}], is a list as well, and would be taken for several prompts.
    if any(isinstance(prompt, Mapping) for prompt in prompts):
        raise UserError(
            "prompts are the turns of one conversation: must be a list of conversations, [[...]]"
        )
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    turns = [prompt for prompt in prompts if not isinstance(prompt, str)]
    if not turns:
        return WrittenPrompts(texts, True)
    if texts:
        raise UserError("some prompts are texts and some are turns: give one of both in a call")
    if template is None:
        raise UserError(
            "prompts of turns need a chat template, and the model has none: give plain texts"
        )
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
