"""Prompts of the judge in this process: turns as text, the beginning of the answer, and the tokens
that say each verdict.

It needs a model's tokenizer and chat template, and none of its weights: a command checks them
before it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.core.errors import UserError
from motif_jax.lm import chat_template
from motif_jax.lm.chat_template import Turn
from motif_jax.lm.tokens import Tokenizer
from motif_jax.motif.annotation.prompts import PromptTexts


class Prefill(NamedTuple):
    """The beginning of an answer, and for each verdict the tokens that say it right after."""

    text: str
    tokens: list[list[int]]


class JudgePrompts:
    """The questions of one prompt file as a model of one folder reads them.

    Attributes:
      prefill: the beginning of every answer.
    """

    def __init__(self, folder: Path, texts: PromptTexts, vocab_size: int) -> None:
        """Reads the tokenizer and the chat template of `folder`; `vocab_size` is that of the model.

        Raises:
          UserError: one of the two cannot be used, or they do not fit the prompt file.
        """
        self.texts = texts
        self.tokenizer = Tokenizer.read(folder, vocab_size)
        self._template = chat_template.read(folder)
        self.prefill = find_prefill(self)

    @property
    def turns_by(self) -> str:
        """What writes the turns: 'chat template' or 'plain text'."""
        return "plain text" if self._template is None else "chat template"

    def identity(self) -> dict[str, Any]:
        """What answers depend on besides the model's files and the prompt's texts."""
        return {"turns": self.turns_by, "prefill": self.prefill.text, "tokens": self.prefill.tokens}

    @property
    def in_words(self) -> str:
        """One line: how the prompts are written."""
        if self._template is None:
            return (
                "prompts: plain text, an empty line between turns (the model has no chat template)"
            )
        return "prompts: turns by the model's own chat template"

    def prompt(self, turns: Sequence[Turn]) -> str:
        """The text of a conversation with the beginning of its answer."""
        return self.prompt_with(turns, self.prefill.text)

    def made_up_prompt(self, item: str) -> str:
        """The prompt of a question all of whose texts are `item`."""
        return self.prompt(self.made_up_turns(item))

    def made_up_turns(self, item: str) -> list[dict[str, str]]:
        """The turns of a question all of whose texts are `item`."""
        return self.texts.conversation(*[item] * len(self.texts.form.items))

    def prompt_with(self, turns: Sequence[Turn], beginning: str) -> str:
        """The text of a conversation with `beginning` as that of its answer.

        Raises:
          UserError: the chat template refuses the turns.
        """
        try:
            return self._written(turns, beginning)
        except UserError as error:
            # The remedy is named only where the template takes the turns without the system's.
            if turns[0]["role"] != "system" or not self._can_write(turns[1:], beginning):
                raise
            raise UserError(
                f"{error}; give a prompt file without `system` (config.prompt.file)"
            ) from None

    def tokens(self, prompt: str) -> list[int]:
        """Tokens of a prompt, with special tokens in front of it and none after it: the answer goes
        on.
        """
        # A template writes the special tokens itself.
        has_special = self._template is None
        (row,) = self.tokenizer.encode([prompt], special=has_special, closed=False)
        return row

    def _written(self, turns: Sequence[Turn], beginning: str) -> str:
        if self._template is None:
            return "\n\n".join([*(turn["content"] for turn in turns), beginning])
        if not beginning.strip():
            return self._template.prompt(turns)
        continued = self._template.continued([*turns, {"role": "assistant", "content": beginning}])
        # `continued` ends at the last letter; the blank behind it decides the verdict's tokens.
        return continued + beginning[len(beginning.rstrip()) :]

    def _can_write(self, turns: Sequence[Turn], beginning: str) -> bool:
        try:
            self._written(turns, beginning)
        except UserError:
            return False
        return True


def find_prefill(prompts: JudgePrompts) -> Prefill:
    """The beginning of an answer after which one token tells the verdicts apart, with the tokens of
    each verdict.

    As a server's reply is read, all tokens count that say a verdict's word, in small or capital
    letters, with a blank or without.

    Raises:
      UserError: two verdicts begin with the same token, or one has none.
    """
    form = prompts.texts.answer
    tail = form.template.partition("{verdict}")[2]
    turns = prompts.made_up_turns("")
    spellings = _spellings(prompts.tokenizer, form.verdicts)
    for beginning in dict.fromkeys((form.prefix.rstrip(), form.prefix)):
        prompt = prompts.prompt_with(turns, beginning)
        start = prompts.tokens(prompt)
        rest = form.prefix[len(beginning) :]
        rows = [prompts.tokens(prompt + rest + word + tail) for word in form.verdicts]
        # The verdict's first letters may be in one token with the beginning.
        begin_alike = all(row[: len(start)] == start for row in rows)
        # A tokenizer may drop letters that it does not know.
        have_verdicts = start and all(len(row) > len(start) for row in rows)
        if not (begin_alike and have_verdicts):
            continue
        groups = [{row[len(start)], *known} for row, known in zip(rows, spellings, strict=True)]
        if len(set().union(*groups)) == sum(map(len, groups)):
            return Prefill(beginning, [sorted(group) for group in groups])
    raise UserError(
        f"no single token of this model distinguishes {', '.join(form.verdicts)} after {form.prefix!r}; "
        "use other verdicts in the prompt file"
    )


def _spellings(tokenizer: Tokenizer, words: Sequence[str]) -> list[set[int]]:
    """For each word the tokens whose text it is, whatever the case and the blanks around it."""
    group_of_word = {word.lower(): number for number, word in enumerate(words)}
    groups: list[set[int]] = [set() for _ in words]
    for token, text in enumerate(tokenizer.all_texts):
        number = group_of_word.get(text.strip().lower())
        if number is not None:
            groups[number].add(token)
    return groups
