"""A `LabelSource` without a process of its own, for annotators that answer at once: the lexicon, and tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Question, make_annotator
from motif_jax.annotation.answers import Answers
from motif_jax.annotation.asking import Books, labelled
from motif_jax.annotation.messages import Reply
from motif_jax.annotation.online import Labelled, annotator_config, in_section
from motif_jax.annotation.queue import Items
from motif_jax.annotation.streams import Heard, Server
from motif_jax.datasets.verdicts import UNKNOWN, Form
from motif_jax.support.interruption import never

# Questions that a call of `poll` asks at most.
_MOST_AT_ONCE = 256


class InProcessSource:
    """Answers what was met when it is polled, in this thread: the same calls get the same labels."""

    def __init__(self, config: ConfigDict, form: Form) -> None:
        with in_section():
            self._annotator = make_annotator(annotator_config(config), form)
        self._form = form
        self._books = Books(config, form)
        self._books.identify(dict(self._annotator.identity), self._annotator.prices)
        self._answers = Answers.of(self._annotator.identity, form, config)
        self._closed = False

    def start(self, stopped: Callable[[], bool] = never) -> None:
        """See `LabelSource`; nothing here is waited for."""
        del stopped
        with in_section():
            self._annotator.start()
        self._books.server = Server(True, time.time())

    def meet(
        self, items: Sequence[Items], counts: Sequence[int], scores: Sequence[float] | None, step: int
    ) -> None:
        """See `LabelSource`."""
        self._books.meet(items, counts, scores, step)

    def poll(self) -> list[Labelled]:
        """See `LabelSource`; asks what waits."""
        numbers: list[int] = []
        questions: list[Question] = []
        for asked in self._books.take(_MOST_AT_ONCE):
            opened = self._answers.open(asked)
            if isinstance(opened, Reply):
                self._books.answered(opened)
            else:
                numbers.append(asked.number)
                questions.append(opened)
        if questions:
            for reply in self._answers.keep(self._ask(numbers, questions)):
                self._books.answered(reply)
        return self._books.poll()

    def _ask(self, numbers: Sequence[int], questions: Sequence[Question]) -> list[Heard]:
        start = time.monotonic()
        with in_section():
            answers = [heard for heard in self._annotator.annotate(questions) if heard is not None]
        seconds = time.monotonic() - start
        return [Heard(numbers[place], questions[place], answer, seconds) for place, answer in answers]

    def known(self, items: Sequence[Items]) -> list[Labelled]:
        """See `LabelSource`."""
        found = []
        for item in items:
            question = self._books.question(item)
            answer = self._answers.find(question)
            if answer is not None and answer.label != UNKNOWN:
                reply = Reply(0, answer.label, answer.probabilities, answer.attempts, asked=False)
                found.append(labelled(self._form, item, reply, item != question))
                self._books.settle(item)
        return found

    def queued(self) -> int:
        """See `LabelSource`."""
        return self._books.queued

    def in_flight(self) -> int:
        """See `LabelSource`."""
        return self._books.in_flight

    def metrics(self) -> dict[str, float]:
        """See `LabelSource`."""
        return self._books.metrics()

    def state(self) -> dict[str, Any]:
        """See `LabelSource`."""
        return self._books.state()

    def restore(self, state: dict[str, Any]) -> None:
        """See `LabelSource`."""
        self._books.restore(state)

    def close(self) -> None:
        """See `LabelSource`."""
        if not self._closed:
            self._closed = True
            self._answers.close()
            self._annotator.close()
