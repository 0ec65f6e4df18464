"""What a training and its annotator's process say to each other."""

from __future__ import annotations

from typing import Any, NamedTuple

from motif_jax.annotation.annotator import Prices
from motif_jax.annotation.store import StoredAnswer
from motif_jax.annotation.streams import Server


class Asked(NamedTuple):
    """A question on its way: its number, its texts, and the answers without a verdict that it had before."""

    number: int
    items: tuple[str, ...]
    attempt: int


class Reply(NamedTuple):
    """An answer on its way back.

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


class Ready(NamedTuple):
    """It can be asked: who answers, what tokens cost, how many questions at once, and what the first one cost."""

    identity: dict[str, Any]
    prices: Prices | None
    at_once: int
    first: Reply | None


class Told(NamedTuple):
    """What came of questions, and how the process is.

    Attributes:
      replies, failed: answers, and numbers of questions that have none.
      server: its state, if it changed.
      rests: for how many seconds from now nothing is asked, because the server wants to be left alone.
      megabytes: memory of the process.
    """

    replies: list[Reply]
    failed: list[int]
    server: Server | None
    rests: float
    megabytes: float


class Find(NamedTuple):
    """From the parent: what does the store have of these?"""

    items: list[tuple[str, ...]]


class Found(NamedTuple):
    """What the store has, in the order of `Find`."""

    answers: list[StoredAnswer | None]


class Refusal(NamedTuple):
    """The line for the user that ends it all."""

    message: str


class Crash(NamedTuple):
    """A traceback."""

    trace: str
