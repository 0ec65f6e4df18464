"""One annotator with its answer store and counts: questions in, labels out.

A question whose server dies: `openai_client` sends the request again, `openai.retries` times, with
growing pauses. Then its `ServerError` ends `ask`, after all other answers that have arrived were
written. The question has no line in the store, so that the same command asks it again. Beside a
training nothing ends: `oni/label_service.py` queues the question again.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core.errors import printable
from motif_jax.core.interruption import never
from motif_jax.core.verdicts import PAIR, UNKNOWN, Form
from motif_jax.motif.annotation.annotator import (
    Annotator,
    Answer,
    Prices,
    Question,
    check_answer,
)
from motif_jax.motif.annotation.questions import QuestionHasher
from motif_jax.motif.annotation.store import AnswerStore, StoredAnswer, is_settled


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
        stopped: Callable[[], bool] = never,
    ) -> None:
        """Asks a question `attempts` times at most while its answer is unknown; ends early once
        `stopped()` is true.
        """
        self.annotator = annotator
        self.telemetry = Telemetry(form, annotator.prices)
        self._store = AnswerStore(store_dir, QuestionHasher(annotator.identity).judge)
        self._attempts = attempts
        self._flush_seconds = flush_seconds
        self._stopped = stopped
        self._started = False

    def start(self) -> None:
        """Loads the annotator's model, or reaches its server, if that has not happened yet."""
        if not self._started:
            self.annotator.start()
            self._started = True

    def recall(
        self, questions: Sequence[Question], known: Mapping[str, StoredAnswer]
    ) -> dict[str, StoredAnswer]:
        """Known answers: `known` and those of the store."""
        missing = {question.id for question in self.unsettled(questions, known)}
        stored = self._store.find(missing) if missing else {}
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
        report: Callable[[], None] = lambda: None,
    ) -> dict[str, StoredAnswer]:
        """Asks the questions that `known` does not settle, at most `limit`; returns all answers by
        question id.

        A question without a verdict is asked again in the next round, after all others. `report` is
        called after each writing.

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
            self._ask(pending, answers, report)
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
                    self._write(unwritten, answers)
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
                self._write(unwritten, answers)
                report()
            finally:
                # Frees the engine of questions that nobody waits for, also where the disk is full.
                if isinstance(stream, Generator):
                    stream.close()

    def _write(
        self, answered: Sequence[tuple[Question, Answer]], answers: dict[str, StoredAnswer]
    ) -> None:
        if not answered:
            return
        stored = self._store.keep(answered)
        for (question, _), answer in zip(answered, stored, strict=True):
            answers[question.id] = answer


@dataclasses.dataclass
class Telemetry:
    """Counts of this run's questions.

    Attributes:
      questions: distinct questions of the run.
      store_hits: those that were answered before.
      asked: answers of this run; a question that is asked twice counts twice.
      last_verdict: answers with the form's last verdict, the tie of pairs.
      cut: turns that ended before the model had answered.
      notes: reason -> unknown answers for which the text is not the cause.
      mass: sum of the verdicts' probability together, over answers that have it.
      masses: answers that have it.
      tokens: of prompts, of answers, of the cached part of prompts.
      seconds: from the start of asking to the last answer.
    """

    form: Form = PAIR
    prices: Prices | None = None
    questions: int = 0
    store_hits: int = 0
    asked: int = 0
    last_verdict: int = 0
    unknown: int = 0
    retried: int = 0
    cut: int = 0
    notes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    mass: float = 0.0
    masses: int = 0
    tokens: tuple[int, int, int] = (0, 0, 0)
    seconds: float = 0.0
    _since: float = dataclasses.field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Starts the clock, or continues it: pauses between two calls of `annotate` do not
        count.
        """
        self._since = time.monotonic() - self.seconds

    def answered(self, answer: Answer) -> None:
        """Counts an answer."""
        # The clock stops at the newest answer, so that what follows it does not lower the rates.
        self.seconds = time.monotonic() - self._since
        self.asked += 1
        if answer.label == len(self.form.verdicts) - 1:
            self.last_verdict += 1
        if answer.label == UNKNOWN:
            self.unknown += 1
        if answer.retried:
            self.retried += 1
        if answer.note:
            self.notes[answer.note] += 1
        self.cut += answer.cut
        if answer.mass is not None:
            self.mass += answer.mass
            self.masses += 1
        prompt, completion, cached = answer.tokens
        self.tokens = (
            self.tokens[0] + prompt,
            self.tokens[1] + completion,
            self.tokens[2] + cached,
        )

    def live(self) -> dict[str, float]:
        """Figures for the progress line."""
        figures = self._figures()
        fields = {name: figures[f"{name}_share"] for name in (self.form.verdicts[-1], "unknown")}
        prompt, _, cached = self.tokens
        if prompt:
            fields |= {
                "tokens_per_second": figures["tokens_per_second"],
                "prefix_cached": cached / prompt,
            }
        return {**fields, **self._cost()}

    def _cost(self) -> dict[str, float]:
        return {} if self.prices is None else {"cost": self.prices.of(*self.tokens)}

    def _figures(self) -> dict[str, float]:
        """Shares and rates, 0 before the first answer; the mass only where log-probabilities are
        read.
        """
        asked = max(1, self.asked)
        seconds = max(self.seconds, 1e-9)
        figures = {
            f"{self.form.verdicts[-1]}_share": self.last_verdict / asked,
            "unknown_share": self.unknown / asked,
            "retried_share": self.retried / asked,
            "questions_per_second": self.asked / seconds,
            "tokens_per_second": sum(self.tokens[:2]) / seconds,
        }
        if self.masses:
            figures["mean_verdict_mass"] = self.mass / self.masses
        return figures

    def summary(self) -> dict[str, Any]:
        """All figures, for summary.json. Rates count from the start of asking to the last
        answer.
        """
        prompt, completion, cached = self.tokens
        return {
            "questions": self.questions,
            "store_hits": self.store_hits,
            "asked": self.asked,
            **self._figures(),
            "unknown_notes": dict(self.notes),
            "cut_answers": self.cut,
            "seconds": round(self.seconds, 3),
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "cached_tokens": cached,
            **self._cost(),
        }
