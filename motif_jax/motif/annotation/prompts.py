"""Prompt files for questions about a pair or a single text, and label file names by the published
scheme.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from motif_jax.core import digests, resources
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import PAIR, Form
from motif_jax.motif.annotation.config import Captions
from motif_jax.motif.annotation.parsing import AnswerForm, make_form

FOLDER = resources.path("configs/prompts")
MODES = ("analysis", "verdict", "soft")
_FIELDS = ("system", "question", "retry", "answer", "verdicts", "goals", "examples")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_quote = json.JSONEncoder(ensure_ascii=False).encode

Turns = list[dict[str, str]]


@dataclasses.dataclass(frozen=True)
class PromptTexts:
    """The texts of one prompt file for one goal and answer mode; system, goal and examples may be
    empty.
    """

    system: str
    question: str
    retry: str
    goal: str
    answer: AnswerForm
    form: Form = PAIR
    examples: str = ""

    def identity(self) -> dict[str, Any]:
        """All texts with their hash: the prompt's part of what an answer depends on."""
        texts: dict[str, Any] = {
            "system": self.system,
            "question": self.question,
            "retry": self.retry,
            "goal": self.goal,
            "answer": self.answer.template,
            "verdicts": list(self.answer.verdicts),
        }
        if self.examples:
            # Left out when empty, so that a prompt without examples has the hash of one whose file
            # has no such field.
            texts["examples"] = self.examples
        return {**texts, "hash": digests.of_bytes(json.dumps(texts, sort_keys=True).encode())}

    def conversation(self, *items: str) -> Turns:
        """The turns that ask about the items of a question: two captions of a pair, or one text."""
        turns = [{"role": "system", "content": self.system}] if self.system else []
        return [*turns, {"role": "user", "content": self._fill(self.question, items)}]

    def retried(self, turns: Turns, answer: str) -> Turns:
        """The turns with the answer and the request for a verdict.

        Servers refuse an empty turn of the assistant, and templates two turns of the user: after an
        empty answer the request continues the question.
        """
        request = self._fill(self.retry, [""] * len(self.form.items))
        if answer.strip():
            return [
                *turns,
                {"role": "assistant", "content": answer},
                {"role": "user", "content": request},
            ]
        *earlier, question = turns
        return [*earlier, {**question, "content": f"{question['content'].rstrip()}\n\n{request}"}]

    def _fill(self, template: str, items: Sequence[str]) -> str:
        """The template with its placeholders filled in; items are quoted as JSON strings."""
        # A quoted item is never empty: `or` takes the text of pieces without a name.
        quoted = dict(zip(self.form.items, map(_quote, items), strict=True))
        return "".join(quoted.get(name) or text for name, text in self._pieces(template))

    @functools.cache  # noqa: B019 (a process has a handful of prompts)
    def _pieces(self, template: str) -> list[tuple[str, str]]:
        """The template in pieces: ('', text with its other placeholders filled in) or (name of an
        item, '').

        Items are filled in last and apart, so that a caption which holds "{goal}" stays as it is.
        """
        # A line that holds nothing but the placeholder of an empty text goes with its line end.
        for name, text in (("goal", self.goal), ("examples", self.examples)):
            if not text:
                template = re.sub(rf"(?m)^[ \t]*\{{{name}\}}[ \t]*\n?", "", template)

        values = {"goal": self.goal, "examples": self.examples}
        answers = zip(self.form.verdicts, self.answer.answers, strict=True)
        values |= {f"answer_{verdict}": answer for verdict, answer in answers}

        names = "|".join([*self.form.items, *values])
        pieces: list[tuple[str, str]] = []
        # With a group in the pattern, split returns text and names in turn, beginning with a text.
        for index, piece in enumerate(re.split(rf"\{{({names})\}}", template)):
            is_name = index % 2 == 1
            if not is_name:
                pieces.append(("", piece))
            elif piece in values:
                pieces.append(("", values[piece]))
            else:
                pieces.append((piece, ""))
        return pieces


def prompt_path(version: str, file: str, form: Form = PAIR) -> Path:
    """The prompt file of `config.prompt`: the user's own, or a version's for questions of
    `form`.
    """
    if file:
        return Path(file)
    return (FOLDER if form is PAIR else FOLDER / form.name) / f"{version}.yaml"


def load_prompt(path: Path, goal: str, mode: str, form: Form = PAIR) -> PromptTexts:
    """Reads a prompt file for questions of `form`. Raises UserError: nothing would read a field or
    a placeholder of it.
    """
    tree = _parsed(path.read_text(encoding="utf-8-sig"))
    # Mode soft asks as mode verdict does.
    question = tree["question"]["analysis" if mode == "analysis" else "verdict"]
    # The goal zeroknowledge has no sentence.
    sentence = tree["goals"][goal].strip()
    try:
        unknown = [name for name in tree if name not in _FIELDS]
        if unknown:
            raise UserError(
                f"nothing reads the field {unknown[0]}: the fields must be of {', '.join(_FIELDS)}"
            )
        answer = make_form(tree["answer"], [tree["verdicts"][name] for name in form.verdicts], form)
        examples = _examples(tree, goal, answer, form)

        # A goal or examples that the question leaves out would be read by nobody.
        needed = list(form.items)
        if sentence:
            needed.append("goal")
        if examples:
            needed.append("examples")
        for name in needed:
            if f"{{{name}}}" not in question:
                raise UserError(f"the question for answer.mode={mode} lacks {{{name}}}")

        known = (*form.items, "goal", "examples", *(f"answer_{name}" for name in form.verdicts))
        _check_placeholders(f"the question for answer.mode={mode}", question, known)
        _check_placeholders("retry", tree["retry"], known)
        _check_placeholders("system", tree["system"], ())
    except UserError as error:
        raise UserError(f"prompt file {path}: {error}") from None
    return PromptTexts(tree["system"], question, tree["retry"], sentence, answer, form, examples)


def _check_placeholders(field: str, text: str, known: Sequence[str]) -> None:
    """Raises UserError where a text has a placeholder that nothing would fill in."""
    for name in _PLACEHOLDER.findall(text):
        if name not in known:
            names = ", ".join(f"{{{name}}}" for name in known) or "none"
            raise UserError(f"{field} has {{{name}}}: its placeholders must be of {names}")


def _examples(tree: Mapping[str, Any], goal: str, answer: AnswerForm, form: Form) -> str:
    """The examples that have a verdict for `goal`, one a line; '' without any."""
    lines = []
    for example in tree.get("examples", []):
        if goal not in example["verdicts"]:
            continue
        items = " ".join(_quote(example[name]) for name in form.items)
        label = form.verdicts.index(example["verdicts"][goal])
        lines.append(f"{items} {answer.answers[label]}")
    return "\n".join(lines)


@functools.lru_cache(maxsize=16)
def _parsed(text: str) -> Any:
    """Cached for all goals and modes of a file; do not change the result."""
    # This loader reads every scalar as text: `no` is the word, not False, and 1 is a verdict.
    return yaml.load(text, Loader=yaml.BaseLoader)


def model_tag(model: str) -> str:
    """A model's part of a label file's name: llama70b for Llama-2-70b-chat-hf, else its name in
    letters fit for a file.
    """
    base = model.rstrip("/").split("/")[-1].lower()
    published = re.fullmatch(r"llama-2-(\d+)b-chat(?:-hf)?", base)
    if published:
        return f"llama{published[1]}b"
    return re.sub(r"[^a-z0-9]+", "-", base).strip("-") or "model"


def label_name(model: str, captions: Captions, goal: str, version: str) -> str:
    """Name by the published scheme: llama70b_msg_defaultgoal_default, with msg_ where messages are
    shown, and minbl_ where the status line is.
    """
    parts = [model_tag(model)]
    if captions.messages:
        parts.append("msg")
    if captions.status:
        parts.append("minbl")
    for part in (goal, version):
        parts.append(re.sub(r"[^A-Za-z0-9-]+", "-", part))
    return "_".join(parts)
