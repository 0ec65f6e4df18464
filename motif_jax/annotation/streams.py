"""Questions that come one by one, and their answers as they come: what an annotator is asked while an agent trains.

A stream stays open: it may have nothing to do for a while, a slow answer holds up no other, and a question that could not be
answered is told instead of ending everything.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from motif_jax.annotation.annotator import Annotator, Answer, Question


class Heard(NamedTuple):
    """An answer, and the seconds that it took."""

    number: int
    question: Question
    answer: Answer
    latency_seconds: float


class Failed(NamedTuple):
    """A question without an answer: the error of whoever was asked, and whether it may pass by waiting."""

    number: int
    error: Exception
    passing: bool


class Greeted(NamedTuple):
    """Whoever answers is there."""

    number: int


class Server(NamedTuple):
    """Whether whoever answers is there: since when (Unix time), and why not."""

    up: bool
    since: float
    cause: str = ""


# What a stream tells, from any thread; an exception ends it.
Event = Heard | Failed | Greeted | Server | BaseException
Deliver = Callable[[Any], None]


class Stream(Protocol):
    """An open stream; `Annotator.open_stream` makes one. Any thread may call any method."""

    def ask(self, number: int, question: Question) -> None:
        """Asks; `Heard` or `Failed` of this number will be told. Never blocks."""

    def greet(self, number: int) -> None:
        """Makes sure that whoever answers is there: `Greeted` or `Failed` of this number will be told. Never blocks."""

    def rests(self) -> float:
        """For how many seconds from now nobody is asked, because whoever answers has said so; 0 where it has not."""

    def close(self) -> None:
        """Ends it; what is being asked is given up, and nothing more is told."""


class Source(Protocol):
    """Where an annotator takes questions from."""

    def take(self, most: int, wait: bool) -> list[tuple[int, Question]] | None:
        """Up to `most` (position, question), none where there are none now (`wait`: some); None when none will come."""


class ListSource:
    """The questions of a list."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._waiting = enumerate(questions)

    def take(self, most: int, wait: bool) -> list[tuple[int, Question]] | None:
        """See `Source`."""
        del wait
        taken = [entry for _, entry in zip(range(most), self._waiting, strict=False)]
        return taken or None


class OpenSource:
    """Questions that any thread puts in until it is closed."""

    def __init__(self) -> None:
        self._waiting: collections.deque[tuple[int, Question]] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, number: int, question: Question) -> None:
        """Adds a question."""
        with self._changed:
            self._waiting.append((number, question))
            self._changed.notify()

    def take(self, most: int, wait: bool) -> list[tuple[int, Question]] | None:
        """See `Source`."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def close(self) -> None:
        """Nothing more will come, and what waits is given up."""
        with self._changed:
            self._closed = True
            self._changed.notify()


class ThreadStream:
    """An annotator that answers in a thread of its own, by `Annotator.annotate_open`."""

    def __init__(self, annotator: Annotator, deliver: Deliver) -> None:
        self._annotator, self._deliver = annotator, deliver
        self._source = OpenSource()
        self._asked: dict[int, tuple[Question, float]] = {}
        self._thread = threading.Thread(target=self._run, name="annotator", daemon=True)
        self._thread.start()

    def ask(self, number: int, question: Question) -> None:
        """See `Stream`."""
        self._asked[number] = (question, time.monotonic())
        self._source.put(number, question)

    def greet(self, number: int) -> None:
        """See `Stream`: an annotator that was started is there."""
        self._deliver(Server(True, time.time()))
        self._deliver(Greeted(number))

    def rests(self) -> float:
        """See `Stream`."""
        return 0.0

    def close(self, timeout: float = 5.0) -> None:
        """See `Stream`; an answer that takes longer than `timeout` seconds is not waited for."""
        self._deliver = _nowhere
        self._source.close()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._deliver(Server(True, time.time()))
            for heard in self._annotator.annotate_open(self._source):
                if heard is not None:
                    number, answer = heard
                    question, since = self._asked.pop(number)
                    self._deliver(Heard(number, question, answer, time.monotonic() - since))
        except BaseException as error:  # told to whoever opened the stream
            self._deliver(error)


def _nowhere(event: Any) -> None:
    del event
