"""One annotator with its answer store and counts: questions in, labels out."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core.errors import printable
from motif_jax.core.interruption import never
from motif_jax.core.verdicts import PAIR, Form
from motif_jax.motif.annotation.annotator import Annotator, Answer, Question, check_answer
from motif_jax.motif.annotation.conversations import ConversationLog
from motif_jax.motif.annotation.store import AnswerStore, StoredAnswer, is_settled
from motif_jax.motif.annotation.telemetry import Telemetry

# Is handed answers as soon as they are in the store.
Keep = Callable[[Iterable[tuple[Question, StoredAnswer]]], None]


class AnnotationSession(contextlib.AbstractContextManager["AnnotationSession"]):
    """Asks unanswered questions, and keeps every answer as it arrives, also before an exception;
    closes the annotator.
    """

    def __init__(
        self,
        annotator: Annotator,
        store_dir: str | Path,
        form: Form = PAIR,
        *,
        attempts: int = 1,
        flush_seconds: float = 2.0,
        conversations: ConversationLog | None = None,
        stopped: Callable[[], bool] = never,
    ) -> None:
        """Asks a question `attempts` times at most while its answer is unknown; ends early once
        `stopped()` is true.
        """
        self.annotator = annotator
        self.telemetry = Telemetry(form, annotator.prices)
        self._store = AnswerStore(store_dir)
        self._attempts = attempts
        self._flush_seconds = flush_seconds
        self._conversations = conversations
        self._stopped = stopped
        self._started = False

    def start(self) -> None:
        """Loads the annotator's model, or reaches its server, if that has not happened yet."""
        if not self._started:
            self.annotator.start()
            self._started = True

    def recall(
        self,
        questions: Sequence[Question],
        known: Mapping[str, StoredAnswer],
        keep: Keep = lambda _: None,
    ) -> dict[str, StoredAnswer]:
        """Known answers: `known` and those of the store, which also go to `keep`."""
        missing = {question.id: question for question in self.unsettled(questions, known)}
        stored = self._store.find(missing) if missing else {}
        keep((missing[key], answer) for key, answer in stored.items())
        answers = {**known, **stored}
        distinct = len({question.id for question in questions})
        self.telemetry.questions += distinct
        self.telemetry.store_hits += distinct - len(self.unsettled(questions, answers))
        return answers

    def ask(
        self,
        questions: Sequence[Question],
        known: Mapping[str, StoredAnswer],
        *,
        limit: int | None = None,
        keep: Keep = lambda _: None,
        report: Callable[[], None] = lambda: None,
    ) -> dict[str, StoredAnswer]:
        """Asks the questions that `known` does not settle, at most `limit`; returns all answers by
        question id.

        A question without a verdict is asked again in the next round, after all others. `keep` is
        handed answers once the store has them, `report` is called after each writing.

        Raises:
          UserError: the annotator or the disk failed, or an answer is none that `Answer` allows;
              earlier answers are in the store.
          RuntimeError: the annotator left questions without an answer.
        """
        answers = dict(known)
        while True:
            pending = self.unsettled(questions, answers)[:limit]
            if not pending:
                break
            self.start()
            self._ask(pending, answers, keep, report)
            if limit is not None:
                limit -= len(pending)
            if self._stopped():
                break
            # No stop: an annotator that left one out would be asked for it forever.
            for question in pending:
                answer = answers.get(question.id)
                if answer is None or answer.attempts <= question.attempt:
                    raise RuntimeError(
                        f"{type(self.annotator).__name__} left questions without an answer"
                    )
        return answers

    def unsettled(
        self, questions: Sequence[Question], answers: Mapping[str, StoredAnswer]
    ) -> list[Question]:
        """The distinct questions that have no answer, or an unknown one and attempts left;
        `attempt` is set for the next.
        """
        pending = {}
        for question in questions:
            answer = answers.get(question.id)
            if not is_settled(answer, self._attempts):
                attempt = question.attempt if answer is None else answer.attempts
                pending[question.id] = dataclasses.replace(question, attempt=attempt)
        return list(pending.values())

    def live(self) -> dict[str, float | int | str]:
        """Figures for the progress line."""
        return {**self.telemetry.live(), **self.annotator.live()}

    def summary(self) -> dict[str, Any]:
        """Figures for summary.json."""
        return {**self.telemetry.summary(), **self.annotator.summary()}

    def __exit__(self, *exception: object) -> None:
        self._store.close()
        self.annotator.close()

    def _ask(
        self,
        pending: Sequence[Question],
        answers: dict[str, StoredAnswer],
        keep: Keep,
        report: Callable[[], None],
    ) -> None:
        """Asks each question of `pending` once, and adds what was written to `answers`."""
        unwritten: list[tuple[Question, Answer]] = []
        self.telemetry.begin()
        last_write = time.monotonic()
        stream = self.annotator.annotate(pending)
        try:
            for answered in stream:
                # None comes while answers are awaited: the checks below run all the same.
                if answered is not None:
                    position, answer = answered
                    check_answer(self.annotator, pending[position], answer)
                    unwritten.append((pending[position], answer))
                    self.telemetry.answered(answer)
                if self._stopped():
                    break
                if time.monotonic() - last_write >= self._flush_seconds:
                    self._write(unwritten, answers, keep)
                    report()
                    unwritten = []
                    last_write = time.monotonic()
        except Exception as error:
            # Ctrl-C also reaches the engine's processes, whose errors then only mean that it stops.
            if not self._stopped():
                raise
            message = printable(f"{type(error).__name__}: {error}")
            print(f"while stopping: {message}", file=sys.stderr, flush=True)
        finally:
            # What was answered is paid for, so that it is written after an error, too.
            try:
                self._write(unwritten, answers, keep)
                report()
            finally:
                # Frees the engine of questions that nobody waits for, also where the disk is full.
                if isinstance(stream, Generator):
                    stream.close()

    def _write(
        self,
        answered: Sequence[tuple[Question, Answer]],
        answers: dict[str, StoredAnswer],
        keep: Keep,
    ) -> None:
        if not answered:
            return
        # The store first, so that it always has what `keep` has.
        stored = self._store.keep(answered)
        questions = [question for question, _ in answered]
        keep(list(zip(questions, stored, strict=True)))
        if self._conversations is not None:
            self._conversations.add(answered)
        for question, answer in zip(questions, stored, strict=True):
            answers[question.id] = answer
