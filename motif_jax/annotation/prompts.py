"""Prompt files: the texts of a conversation about a pair, and label file names by the published scheme."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from motif_jax.annotation.parsing import AnswerForm, make_form
from motif_jax.support.errors import UserError

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "prompts"
MODES = ("analysis", "verdict", "soft")
_PLACEHOLDER = re.compile(r"\{(goal|first|second|answer_first|answer_second|answer_tie)\}")

_quote = json.JSONEncoder(ensure_ascii=False).encode

Turns = list[dict[str, str]]


@dataclasses.dataclass(frozen=True)
class Prompt:
    """The texts of one prompt file for one goal and answer mode.

    Attributes:
      system: the system turn; empty for none.
      question: the user turn with placeholders.
      retry: the second user turn, for an answer without a verdict.
      goal: the goal sentence, may be empty.
      form: how the verdict is written.
    """

    system: str
    question: str
    retry: str
    goal: str
    form: AnswerForm

    def identity(self) -> dict[str, Any]:
        """The texts and their hash, for manifests and question ids."""
        texts = {
            "system": self.system,
            "question": self.question,
            "retry": self.retry,
            "goal": self.goal,
            "answer": self.form.template,
            "verdicts": list(self.form.verdicts),
        }
        canonical = json.dumps(texts, sort_keys=True).encode()
        return {**texts, "hash": hashlib.blake2b(canonical, digest_size=16).hexdigest()}

    def conversation(self, first: str, second: str) -> Turns:
        """The turns that ask about an ordered pair of captions."""
        turns = [{"role": "system", "content": self.system}] if self.system else []
        return [*turns, {"role": "user", "content": self._fill(self.question, first, second)}]

    def retried(self, turns: Turns, answer: str) -> Turns:
        """The conversation with an answer that held no verdict and the request for it."""
        return [
            *turns,
            {"role": "assistant", "content": answer},
            {"role": "user", "content": self._fill(self.retry, "", "")},
        ]

    def _fill(self, template: str, first: str, second: str) -> str:
        captions = {"first": _quote(first), "second": _quote(second)}
        return "".join(captions.get(name) or text for name, text in self._pieces(template))

    @functools.cache  # noqa: B019 (a process has a handful of prompts)
    def _pieces(self, template: str) -> list[tuple[str, str]]:
        """The template in pieces: ('', text) or ('first' | 'second', '') where a caption goes.

        Everything else is filled in here once. A caption that holds a placeholder stays as it is.
        """
        if not self.goal:
            template = re.sub(r"(?m)^[ \t]*\{goal\}[ \t]*\n?", "", template)
        names = ("answer_first", "answer_second", "answer_tie")
        values = {"goal": self.goal, **dict(zip(names, self.form.answers, strict=True))}
        pieces = []
        for place, piece in enumerate(_PLACEHOLDER.split(template)):
            if place % 2 and piece in ("first", "second"):
                pieces.append((piece, ""))
            else:
                pieces.append(("", values[piece] if place % 2 else piece))
        return pieces


def prompt_path(version: str, file: str) -> Path:
    """The prompt file of `config.prompt`: the user's own, or the one of a version."""
    if file:
        return Path(file)
    known = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    if version not in known:
        raise UserError(
            f"config.prompt.version={version}: must be one of {', '.join(known)}, or give prompt.file"
        )
    return FOLDER / f"{version}.yaml"


def load_prompt(path: Path, goal: str, mode: str) -> Prompt:
    """Reads a prompt file.

    Raises:
      UserError: the file cannot be read, a field is missing or not a text, a placeholder is missing, or it has no such
        goal.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"prompt file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"prompt file {path} is not YAML: {error}") from None
    if not isinstance(tree, Mapping):
        raise UserError(
            f"prompt file {path} must hold the fields system, question, retry, answer, verdicts, goals"
        )
    question = _text(tree, path, f"question.{'analysis' if mode == 'analysis' else 'verdict'}")
    for needed in ("first", "second"):
        if f"{{{needed}}}" not in question:
            raise UserError(f"prompt file {path}: the question for answer.mode={mode} lacks {{{needed}}}")
    goals = tree.get("goals")
    if not isinstance(goals, Mapping) or not goals:
        raise UserError(f"prompt file {path} lacks the field goals")
    if goal not in goals:
        raise UserError(
            f"config.goal={goal}: must be one of {', '.join(map(str, goals))}, the goals of {path}"
        )
    verdicts = (_text(tree, path, f"verdicts.{name}") for name in ("first", "second", "tie"))
    try:
        form = make_form(_text(tree, path, "answer"), *verdicts)
    except UserError as error:
        raise UserError(f"prompt file {path}: {error}") from None
    system = _text(tree, path, "system", empty=True)
    sentence = _text(tree, path, f"goals.{goal}", empty=True).strip()
    if sentence and "{goal}" not in question:
        raise UserError(f"prompt file {path}: the question for answer.mode={mode} lacks {{goal}}")
    return Prompt(system, question, _text(tree, path, "retry"), sentence, form)


def _text(tree: Mapping[str, Any], path: Path, field: str, empty: bool = False) -> str:
    value: Any = tree
    for part in field.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise UserError(f"prompt file {path} lacks the field {field}")
        value = value[part]
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not (empty or value.strip()):
        raise UserError(f"prompt file {path}: the field {field} must be a text")
    return value


def model_tag(model: str) -> str:
    """A model's part of a label file's name: llama70b for Llama-2-70b-chat-hf, else its name in a file's letters."""
    base = model.rstrip("/").split("/")[-1].lower()
    if published := re.fullmatch(r"llama-2-(\d+)b-chat(?:-hf)?", base):
        return f"llama{published[1]}b"
    return re.sub(r"[^a-z0-9]+", "-", base).strip("-") or "model"


def label_name(model: str, status: bool, goal: str, version: str) -> str:
    """Name by the published scheme: llama70b_msg_defaultgoal_default, with minbl_ where the status line is shown."""
    clean = [re.sub(r"[^A-Za-z0-9-]+", "-", part) for part in (goal, version)]
    return "_".join([model_tag(model), "msg", *(["minbl"] if status else []), *clean])
