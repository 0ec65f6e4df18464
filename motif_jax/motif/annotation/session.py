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
from motif_jax.core.verdicts import PAIR, UNKNOWN, Form
from motif_jax.motif.annotation.annotator import Annotator, Answer, Question
from motif_jax.motif.annotation.conversations import ConversationLog
from motif_jax.motif.annotation.store import AnswerStore, StoredAnswer
from motif_jax.motif.annotation.telemetry import Telemetry

Keep = Callable[[Iterable[tuple[Question, StoredAnswer]]], None]


class AnnotationSession(contextlib.AbstractContextManager["AnnotationSession"]):
    """Asks unanswered questions, and keeps every answer as it arrives, also before an exception; closes the annotator."""

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
        """Asks a question `attempts` times at most while its answer is unknown; `stopped` is called now and then."""
        self.annotator = annotator
        self.telemetry = Telemetry(form, annotator.prices)
        self._store = AnswerStore(store_dir)
        self._attempts = attempts
        self._flush_seconds = flush_seconds
        self._conversations = conversations
        self._stopped = stopped
        self._started = False

    def start(self) -> None:
        if not self._started:
            self.annotator.start()
            self._started = True

    def recall(
        self, questions: Sequence[Question], known: Mapping[str, StoredAnswer], keep: Keep = lambda _: None
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
        """Answers by question id; asks those that are not in `known`, at most `limit`. `keep` gets what the store has.

        Raises UserError: the annotator or the disk failed (earlier answers are kept); RuntimeError: questions were left out.
        """
        answers = dict(known)
        while pending := self.unsettled(questions, answers)[:limit]:
            self.start()
            self._ask(pending, answers, keep, report)
            if limit is not None:
                limit -= len(pending)
            if self._stopped():
                break
            if any(q.id not in answers or answers[q.id].attempts <= q.attempt for q in pending):
                raise RuntimeError(f"{type(self.annotator).__name__} left questions without an answer")
        return answers

    def unsettled(self, questions: Sequence[Question], answers: Mapping[str, StoredAnswer]) -> list[Question]:
        pending = {}
        for question in questions:
            answer = answers.get(question.id)
            if answer is None:
                pending[question.id] = question
            elif answer.label == UNKNOWN and answer.attempts < self._attempts:
                pending[question.id] = dataclasses.replace(question, attempt=answer.attempts)
        return list(pending.values())

    def live(self) -> dict[str, float | int | str]:
        return {**self.telemetry.live(), **self.annotator.live()}

    def summary(self) -> dict[str, Any]:
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
        waiting: list[tuple[Question, Answer]] = []
        self.telemetry.begin()
        flushed = time.monotonic()
        stream = self.annotator.annotate(pending)
        try:
            for answered in stream:
                if answered is not None:
                    waiting.append((pending[answered[0]], answered[1]))
                    self.telemetry.answered(answered[1])
                if self._stopped():
                    break
                if time.monotonic() - flushed >= self._flush_seconds:
                    self._write(waiting, answers, keep)
                    report()
                    waiting = []
                    flushed = time.monotonic()
        except Exception as error:
            # Ctrl-C also reaches the engine's processes, whose errors then only mean that it stops.
            if not self._stopped():
                raise
            said = printable(f"{type(error).__name__}: {error}")
            print(f"while stopping: {said}", file=sys.stderr, flush=True)
        finally:
            try:
                self._write(waiting, answers, keep)
                report()
            finally:
                if isinstance(stream, Generator):
                    stream.close()

    def _write(
        self, answered: Sequence[tuple[Question, Answer]], answers: dict[str, StoredAnswer], keep: Keep
    ) -> None:
        if not answered:
            return
        # The store first, so that it always has what `keep` has.
        stored = self._store.keep(answered)
        pairs = [(question, kept) for (question, _), kept in zip(answered, stored, strict=True)]
        keep(pairs)
        if self._conversations is not None:
            self._conversations.add(answered)
        answers.update((question.id, kept) for question, kept in pairs)
