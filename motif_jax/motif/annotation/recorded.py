"""Answers again what another annotator has answered, from the conversations that were kept: a judge's labels without the judge.

--config.annotator=motif_jax.motif.annotation.recorded:RecordedAnnotator --config.options='{"file": "FILE.jsonl.gz"}'
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FORMS, Form
from motif_jax.motif.annotation.annotator import Annotator, Answer, Question, own_options
from motif_jax.motif.annotation.config import AnnotatorConfig


class RecordedAnnotator(Annotator):
    """Answers from a file of `ConversationLog`, whose lines have the texts that were asked and the probabilities of the verdicts."""

    forms = FORMS

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        path = _path(config)
        self.identity = {"annotator": "recorded", "answers": digests.of_bytes(path.read_bytes())}
        self.short_name = path.name.partition(".")[0]
        self._path = path
        self._answers = read_answers(path, form)

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        read_answers(_path(config), form)

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        for position, question in enumerate(questions):
            answer = self._answers.get(question.items)
            if answer is None:
                raise UserError(
                    f"{self._path} has no answer about {question.items}: it is of another dataset, or was asked in one order "
                    "(--config.orders)"
                )
            yield position, answer


def _path(config: AnnotatorConfig) -> Path:
    path = Path(str(own_options(config).get("file", "")))
    if not path.is_file():
        raise UserError(
            f"config.options={config.options}: file must be conversations that annotate has kept, FILE.jsonl.gz"
        )
    return path


def read_answers(path: Path, form: Form) -> dict[tuple[str, ...], Answer]:
    """The answers of a file of conversations by the texts that were asked. Raises UserError: it is none, or of another form."""
    labels = {name: label for label, name in form.labels.items()}
    answers = {}
    try:
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            value = json.loads(line)
            probabilities = value["probabilities"]
            certain = None if probabilities is None else tuple(map(float, probabilities))
            answers[tuple(value["items"])] = Answer(labels[value["label"]], certain, mass=value["mass"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: must be conversations that annotate has kept ({error!r})") from None
    return answers
