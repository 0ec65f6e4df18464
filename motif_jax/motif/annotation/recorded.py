"""Answers questions from recorded answers, so that a judge's labels can be made again without the
judge.

The answers are what `annotate` writes with --config.keep_conversations=True: a file, or the folder
of the files that shards and resumed commands have written.

    --config.annotator=motif_jax.motif.annotation.recorded:RecordedAnnotator
    --config.options='{"file": "WORKDIR/conversations"}'
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, FORMS, PAIR, SECOND, TIE, UNKNOWN, Form
from motif_jax.motif.annotation.annotator import Annotator, Answer, Preview, Question, own_options
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.labels import TURNED


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

    def preview(self, question: Question) -> Preview:
        """What the recorded annotator read, without its answer; the captions where they were not
        asked.
        """
        answer = self._answers.get(question.items)
        if answer is None:
            return super().preview(question)
        asked = [turn for turn in answer.turns if turn["role"] != "assistant"]
        return Preview("\n".join(f"[{turn['role']}]\n{_content(turn)}" for turn in asked))


def _content(turn: Mapping[str, Any]) -> str:
    """A turn's text. An annotator without a conversation has left the captions, as a list."""
    content = turn["content"]
    return content if isinstance(content, str) else "\n----\n".join(content)


def _answers_files(config: AnnotatorConfig) -> tuple[Path, list[Path]]:
    """The path that the config names, and the files there."""
    path = Path(str(own_options(config).get("file", "")))
    files = sorted(path.glob("*.jsonl.gz")) if path.is_dir() else [path]
    # Names of annotations have no dot.
    names = sorted({file.name.partition(".")[0] for file in files})
    if len(names) > 1:
        raise UserError(
            f"config.options={config.options}: file must be conversations of a single annotation, but {path} has those of "
            f"{', '.join(names)}: name one of its files, or move the others"
        )
    if not files or not files[0].is_file():
        raise UserError(
            f"config.options={config.options}: file must be conversations that annotate has kept, FILE.jsonl.gz or their folder"
        )
    return path, files


def _whole_lines(path: Path) -> Iterator[str]:
    """The lines of a file of gzip members. A kill of `annotate` tears the last member at most: what
    it lacks is left out.
    """
    has_lines = False
    with (
        gzip.open(path, "rt", encoding="utf-8", newline="\n") as file,
        contextlib.suppress(EOFError),
    ):
        try:
            for line in file:
                has_lines = True
                yield line
        except gzip.BadGzipFile:  # the first byte of a member alone
            if not has_lines:
                raise


def read_recorded_answers(paths: Sequence[Path], form: Form) -> dict[tuple[str, ...], Answer]:
    """The recorded answers of files by the texts that were asked. Raises UserError: one has none,
    or of another form.

    Of several answers to a question the first known label counts, as in `store.better`.
    """
    # Conversations name their labels.
    labels = {name: label for label, name in form.labels.items()}
    answers: dict[tuple[str, ...], Answer] = {}
    for path in paths:
        try:
            for line in _whole_lines(path):
                value = json.loads(line)
                items = tuple(value["items"])
                probabilities = value["probabilities"]
                verdict_probabilities = (
                    None if probabilities is None else tuple(map(float, probabilities))
                )
                answer = Answer(
                    labels[value["label"]],
                    verdict_probabilities,
                    turns=tuple(value["turns"]),
                    mass=value["mass"],
                )
                if items not in answers or answers[items].label == UNKNOWN:
                    answers[items] = answer
        except (OSError, zlib.error, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}: must be conversations that annotate has kept ({error!r})"
            ) from None
    return answers
