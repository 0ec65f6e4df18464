"""Asks what is not answered yet, and keeps every answer as it comes in."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from motif_jax.annotation.annotator import UNKNOWN, Annotator, Answer, Question
from motif_jax.annotation.conversations import ConversationLog
from motif_jax.annotation.shards import Shard
from motif_jax.annotation.store import AnswerStore, StoredAnswer
from motif_jax.annotation.telemetry import Telemetry


@dataclasses.dataclass
class Asking:
    """Where answers come from and where they go.

    Attributes:
      annotator: who is asked.
      store: keeps every answer for all runs.
      shard: keeps the answers of this shard's questions.
      telemetry: counts.
      conversations: keeps the conversations, or None.
      flush_seconds: answers are written at least this often while they come in.
      attempts: how often a question is asked at most while its answers are unknown.
      stopped: says whether to stop early.
      report: called after each write.
    """

    annotator: Annotator
    store: AnswerStore
    shard: Shard
    telemetry: Telemetry
    conversations: ConversationLog | None = None
    flush_seconds: float = 2.0
    attempts: int = 1
    stopped: Callable[[], bool] = lambda: False
    report: Callable[[], None] = lambda: None

    def ask(
        self, questions: Sequence[Question], known: Mapping[str, StoredAnswer], limit: int | None = None
    ) -> bool:
        """Asks those of `questions` that `known` does not settle; at most `limit` of them.

        Returns:
          True if all questions are settled, False if it was stopped or limited before.
        """
        answers = dict(known)
        left = limit
        while pending := unsettled(questions, answers, self.attempts):
            if left is not None:
                pending = pending[:left]
                left -= len(pending)
            for question, answer in self._answers(pending):
                answers[question.id] = StoredAnswer.of(answer, question.attempt + 1)
            if self.stopped() or left == 0:
                break
        return not unsettled(questions, answers, self.attempts)

    def _answers(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Answer]]:
        """Yields answers that were written; those not written yet are written even if the annotator fails."""
        waiting: list[tuple[Question, Answer]] = []
        flushed = time.monotonic()
        try:
            for position, answer in self.annotator.annotate(questions):
                waiting.append((questions[position], answer))
                self.telemetry.answered(answer)
                if self.stopped():
                    break
                if time.monotonic() - flushed >= self.flush_seconds:
                    self._write(waiting)
                    self.report()
                    yield from waiting
                    waiting = []
                    flushed = time.monotonic()
        except Exception:
            # Ctrl-C reaches an engine's own processes too, and to stop is what was asked for.
            if not self.stopped():
                raise
        finally:
            self._write(waiting)
            self.report()
        yield from waiting

    def _write(self, answers: Sequence[tuple[Question, Answer]]) -> None:
        if not answers:
            return
        stored = [
            (question, answer, StoredAnswer.of(answer, question.attempt + 1)) for question, answer in answers
        ]
        # The store first: what the shard has is always in the store too.
        self.store.add((question.id, kept, _cost(answer)) for question, answer, kept in stored)
        self.shard.add((question.id, kept) for question, _, kept in stored)
        if self.conversations is not None:
            self.conversations.add(answers)


def unsettled(
    questions: Sequence[Question], known: Mapping[str, StoredAnswer], attempts: int
) -> list[Question]:
    """The questions without an answer, and those whose answers are unknown and that may be asked again."""
    pending = []
    for question in questions:
        answer = known.get(question.id)
        if answer is None:
            pending.append(question)
        elif answer.label == UNKNOWN and answer.attempts < attempts:
            pending.append(dataclasses.replace(question, attempt=answer.attempts))
    return pending


def _cost(answer: Answer) -> dict[str, Any]:
    cost: dict[str, Any] = {}
    if answer.prompt_tokens:
        cost["tokens"] = [answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens]
    if answer.note:
        cost["note"] = answer.note
    return cost
