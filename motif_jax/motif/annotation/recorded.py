"""Answers questions from recorded answers, so that a judge's labels can be made again without the
judge.

The answers are those of an answer store that one judge alone has filled (`config.store_dir` of its
command): a file of it, or its folder.

    --config.annotator=motif_jax.motif.annotation.recorded:RecordedAnnotator
    --config.options='{"file": "STORE"}'

Files FILE.jsonl.gz, as those of docs/studies/judges, are conversations that earlier versions kept.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import digests
from motif_jax.core.checked_lines import read_lines
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, FORMS, PAIR, SECOND, TIE, UNKNOWN, Form
from motif_jax.motif.annotation.annotator import Annotator, Answer, Question, own_options
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.labels import TURNED
from motif_jax.motif.annotation.store import StoredAnswer


class RecordedAnnotator(Annotator):
    """Answers from recorded answers, which have the texts that were asked and the probabilities of
    the verdicts.

    A pair that was asked in the other order has its answer turned, but with `orders=both`, where
    both must have been asked.
    """

    forms = FORMS

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        path, files = _answers_files(config)
        contents = b"".join(file.read_bytes() for file in files)
        self.identity = {"annotator": "recorded", "answers": digests.of_bytes(contents)}
        self.short_name = path.name.partition(".")[0]
        self._file = path
        self._answers = read_recorded_answers(files, form)
        self._turns = form is PAIR and getattr(config, "orders", "") != "both"

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        read_recorded_answers(_answers_files(config)[1], form)

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        for position, question in enumerate(questions):
            answer = self._answer(question)
            if answer is None:
                raise UserError(
                    f"{self._file} has no answer about {question.items}: it is of another dataset, or was asked in one order "
                    "(--config.orders)"
                )
            yield position, answer

    def _answer(self, question: Question) -> Answer | None:
        answer = self._answers.get(question.items)
        if answer is not None or not self._turns:
            return answer
        # Asked in the other order, it is the answer to this one once it is turned.
        answer = self._answers.get(question.items[::-1])
        if answer is None:
            return None
        probabilities = answer.probabilities
        if probabilities is not None:
            probabilities = tuple(probabilities[TURNED[label]] for label in (FIRST, SECOND, TIE))
        return dataclasses.replace(
            answer, label=int(TURNED[answer.label]), probabilities=probabilities
        )


def _answers_files(config: AnnotatorConfig) -> tuple[Path, list[Path]]:
    """The path that the config names, and the files there."""
    path = Path(own_options(config)["file"])
    return path, sorted(path.glob("*.jsonl")) if path.is_dir() else [path]


def read_recorded_answers(paths: Sequence[Path], form: Form) -> dict[tuple[str, ...], Answer]:
    """The recorded answers of files by the texts that were asked. Raises UserError: they are of
    several judges.

    Of several answers to a question the first known label counts, as in `store.better`.
    """
    answers: dict[tuple[str, ...], Answer] = {}
    judges: set[str] = set()
    for path in paths:
        kept = _of_conversations(path, form) if path.suffix == ".gz" else _of_store(path, judges)
        for items, answer in kept:
            if items not in answers or answers[items].label == UNKNOWN:
                answers[items] = answer
    if len(judges) > 1:
        raise UserError(
            f"{paths[0].parent} has the answers of {len(judges)} judges: give the one to be recorded a --config.store_dir of its own"
        )
    return answers


def _of_store(path: Path, judges: set[str]) -> Iterator[tuple[tuple[str, ...], Answer]]:
    """The texts and the answer of each line of a store's file that has texts; adds to `judges`."""
    for _, value in read_lines(path):
        stored = StoredAnswer.from_json(value)
        if stored is not None and "items" in value:
            judges.add(value["judge"])
            yield (
                tuple(value["items"]),
                Answer(stored.label, stored.probabilities, mass=stored.mass),
            )


def _of_conversations(path: Path, form: Form) -> Iterator[tuple[tuple[str, ...], Answer]]:
    """The texts and the answer of each conversation that an earlier version has kept."""
    # Conversations name their labels.
    labels = {name: label for label, name in form.labels.items()}
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            value = json.loads(line)
            shares = value["probabilities"]
            probabilities = None if shares is None else tuple(map(float, shares))
            yield (
                tuple(value["items"]),
                Answer(labels[value["label"]], probabilities, mass=value["mass"]),
            )
