"""Answers questions from recorded answers, so that a judge's labels can be made again without the judge.

The file of answers is what `annotate` writes with --config.keep_conversations=True.

--config.annotator=motif_jax.motif.annotation.recorded:RecordedAnnotator --config.options='{"file": "FILE.jsonl.gz"}'
"""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FORMS, Form
from motif_jax.motif.annotation.annotator import Annotator, Answer, Preview, Question, own_options
from motif_jax.motif.annotation.config import AnnotatorConfig


class RecordedAnnotator(Annotator):
    """Answers from a file of recorded answers, which have the texts that were asked and the probabilities of the verdicts."""

    forms = FORMS

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        path = _answers_file(config)
        self.identity = {"annotator": "recorded", "answers": digests.of_bytes(path.read_bytes())}
        self.short_name = path.name.partition(".")[0]
        self._file = path
        self._answers = read_recorded_answers(path, form)

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        read_recorded_answers(_answers_file(config), form)

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        for position, question in enumerate(questions):
            answer = self._answers.get(question.items)
            if answer is None:
                raise UserError(
                    f"{self._file} has no answer about {question.items}: it is of another dataset, or was asked in one order "
                    "(--config.orders)"
                )
            yield position, answer

    def preview(self, question: Question) -> Preview:
        """What the recorded annotator read, without its answer; the captions where they were not asked."""
        answer = self._answers.get(question.items)
        if answer is None:
            return super().preview(question)
        asked = [turn for turn in answer.turns if turn["role"] != "assistant"]
        return Preview("\n".join(f"[{turn['role']}]\n{_content(turn)}" for turn in asked))


def _content(turn: Mapping[str, Any]) -> str:
    """A turn's text. An annotator without a conversation has left the captions, as a list."""
    content = turn["content"]
    return content if isinstance(content, str) else "\n----\n".join(content)


def _answers_file(config: AnnotatorConfig) -> Path:
    path = Path(str(own_options(config).get("file", "")))
    if not path.is_file():
        raise UserError(
            f"config.options={config.options}: file must be conversations that annotate has kept, FILE.jsonl.gz"
        )
    return path


def _whole_lines(path: Path) -> Iterator[str]:
    """The lines of a file of gzip members. A kill of `annotate` tears the last member at most: what it lacks is left out."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file, contextlib.suppress(EOFError):
        yield from file


def read_recorded_answers(path: Path, form: Form) -> dict[tuple[str, ...], Answer]:
    """The recorded answers of a file by the texts that were asked. Raises UserError: the file has none, or of another form."""
    labels = {name: label for label, name in form.labels.items()}
    answers = {}
    try:
        for line in _whole_lines(path):
            value = json.loads(line)
            probabilities = value["probabilities"]
            verdict_probabilities = None if probabilities is None else tuple(map(float, probabilities))
            answers[tuple(value["items"])] = Answer(
                labels[value["label"]], verdict_probabilities, turns=tuple(value["turns"]), mass=value["mass"]
            )
    except (OSError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: must be conversations that annotate has kept ({error!r})") from None
    return answers
