"""Messages between the question queue, the answer store and an annotator while an agent trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from motif_jax.labels.annotator import Answer, Question


class Asked(NamedTuple):
    """A question that leaves the queue: its number, its texts, and the answers without a verdict that it had before."""

    number: int
    items: tuple[str, ...]
    attempt: int


class Reply(NamedTuple):
    """Events that the bookkeeping counts.

    Attributes:
      number: of the question.
      label, probabilities: as `Answer` has them.
      attempts: how often the question was asked until now, by anybody.
      latency_seconds: from being asked to being answered; 0 for what the store had.
      tokens: of prompts, answers, and of prompts that the server had cached.
      asked: False if the store had it.
    """

    number: int
    label: int
    probabilities: tuple[float, ...] | None
    attempts: int
    latency_seconds: float = 0.0
    tokens: tuple[int, int, int] = (0, 0, 0)
    asked: bool = True


class Answered(NamedTuple):
    """An answer, and the seconds that it took."""

    number: int
    question: Question
    answer: Answer
    latency_seconds: float


class Failed(NamedTuple):
    """A question without an answer: the server's error, and whether it may pass by waiting."""

    number: int
    error: Exception
    passing: bool


class Greeted(NamedTuple):
    """The server is there."""

    number: int


class ServerStatus(NamedTuple):
    """Whether the annotator can be reached: since when (Unix time), and why not."""

    up: bool
    since: float
    cause: str = ""


# Takes what a stream of questions reports, from any thread; an exception ends the stream.
Deliver = Callable[[Any], None]
