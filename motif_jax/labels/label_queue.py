"""Bookkeeping of a `LabelService`: queued, in-flight and answered questions, and their cost."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from motif_jax.datasets.verdicts import FIRST, PAIR, TIE, UNKNOWN, YES, Form
from motif_jax.labels.annotator import Prices
from motif_jax.labels.labels import TURNED
from motif_jax.labels.online import Labelled
from motif_jax.labels.questions import QuestionHasher, is_reversed
from motif_jax.labels.queue import Items, Pending, PublishedQueue, QuestionQueue
from motif_jax.labels.store import StoredAnswer

# Totals of a run, kept in checkpoints (see docs/metrics.md).
_TOTALS = (
    "questions answers from_store ties unknown given_up failures dropped "
    "prompt_tokens completion_tokens cached_tokens"
).split()


@dataclasses.dataclass
class _Interval:
    since: float
    latencies: int = 0
    latency_sum: float = 0.0
    latency_max: float = 0.0
    tokens: int = 0


class LabelBookkeeper:
    """Counts and queue of a `LabelService`; thread safe.

    Each distinct question is queued once, and not again while in flight or answered. Of two texts one order is asked, drawn
    by their hash, and its answer serves both; equal texts are a tie, unasked. compat.oni_requeue: all as published.
    """

    def __init__(
        self, config: ConfigDict, form: Form, identity: Mapping[str, Any], prices: Prices | None
    ) -> None:
        self._form, self._hasher, self._prices = form, QuestionHasher(identity), prices
        self._published = bool(config.compat.get("oni_requeue", False))
        self._queue: QuestionQueue | PublishedQueue = (
            PublishedQueue(config.queue.size, config.queue.batch)
            if self._published
            else QuestionQueue(config.queue.size, config.queue.order)
        )
        self._batch = config.queue.batch
        self._attempts = config.annotator.attempts
        self._budget = config.queue.budget
        self._lock = threading.Lock()
        self._flight: dict[int, Pending] = {}
        self._flying: dict[Items, Pending] = {}
        # Hashes of the texts that are settled.
        self._settled: set[int] = set()
        self._ready: list[Labelled] = []
        self._number = 0
        self._step = 0
        self._totals = dict.fromkeys(_TOTALS, 0)
        self._interval = _Interval(time.monotonic())
        # Whether the annotator can be reached, and since when (Unix time).
        self.server_up, self.server_since = False, time.time()

    def enqueue(
        self, items: Sequence[Items], counts: Sequence[int], scores: Sequence[float] | None, step: int
    ) -> None:
        with self._lock:
            self._step = max(self._step, step)
            for place, (item, count) in enumerate(zip(items, counts, strict=True)):
                self._enqueue(item, count, 0.0 if scores is None else scores[place])
            self._queue.shrink()

    def _enqueue(self, item: Items, count: int, score: float) -> None:
        if self._published:
            self._queue.enqueue(item, count, score)
            return
        if hash(item) in self._settled:
            return
        if len(item) > 1 and item[0] == item[1]:
            self._settled.add(hash(item))
            self._totals["ties"] += 1
            self._ready.append(Labelled(item, TIE, 0.5, 0.0, 0))
            return
        question = self.question(item)
        pending = self._flying.get(question) or self._queue.enqueue(question, count, score)
        if self._form is PAIR and item not in pending.met_as:
            pending.met_as += (item,)

    def question(self, item: Items) -> Items:
        """The texts in the order in which they are asked."""
        if self._form is not PAIR or self._published:
            return item
        return item[::-1] if is_reversed(self._hasher, item[0], item[1]) else item

    def take(self, most: int) -> list[Pending]:
        """Up to `most` questions to be asked now, within the budgets."""
        with self._lock:
            if self._published:  # a whole call after the other
                most = 0 if self._flight else self._batch
            taken = self._queue.take(min(most, self._allowed()), time.monotonic())
            for pending in taken:
                self._number += 1
                pending.number = self._number
                self._flight[pending.number] = pending
                self._flying[pending.items] = pending
            return taken

    def _allowed(self) -> int:
        budget, totals, flying = self._budget, self._totals, len(self._flight)
        millions = self._step / 1e6
        left = math.inf
        for most, share in ((budget.questions, 1.0), (budget.questions_per_million_steps, millions)):
            if most is not None:
                left = min(left, most * share - totals["questions"] - flying)
        tokens = totals["prompt_tokens"] + totals["completion_tokens"]
        for most, share in ((budget.tokens, 1.0), (budget.tokens_per_million_steps, millions)):
            if most is None:
                continue
            if totals["questions"]:
                each = max(tokens / totals["questions"], 1e-9)
                left = min(left, (most * share - tokens) / each - flying)
            else:  # the cost of a question is still unknown
                left = min(left, 1 - flying)
        return max(0, math.floor(min(left, 1 << 30)))

    def answered(
        self, number: int, answer: StoredAnswer, tokens: Sequence[int] | None = None, seconds: float = 0.0
    ) -> None:
        """Counts an answer; a question in flight gets its label.

        Args:
          answer: the newest, with all attempts of any run.
          tokens: (prompt, completion, cached); None if the store had the answer.
          seconds: from being asked to being answered.
        """
        with self._lock:
            pending = self._land(number)
            self._count(answer, tokens, seconds)
            if pending is not None:
                self._settle(pending, answer, sum((tokens or (0, 0))[:2]), seconds)

    def _settle(self, pending: Pending, answer: StoredAnswer, tokens: int, seconds: float) -> None:
        unknown = answer.label == UNKNOWN
        if unknown and answer.attempts < self._attempts and not self._published:
            pending.attempts, pending.failures = answer.attempts, 0
            self._queue.give_back(pending)
            self._queue.shrink()
            return
        for item in pending.met_as or (pending.items,):
            if not self._published:
                self._settled.add(hash(item))
            if not unknown:
                self._ready.append(labelled(self._form, item, answer, item != pending.items, tokens, seconds))
        self._totals["given_up"] += unknown

    def _count(self, answer: StoredAnswer, tokens: Sequence[int] | None, seconds: float) -> None:
        totals = self._totals
        if tokens is None:
            totals["from_store"] += answer.label != UNKNOWN
            return
        totals["questions"] += 1
        totals["unknown" if answer.label == UNKNOWN else "answers"] += 1
        for name, count in zip(("prompt", "completion", "cached"), tokens, strict=True):
            totals[f"{name}_tokens"] += count
        interval = self._interval
        interval.latencies += 1
        interval.latency_sum += seconds
        interval.latency_max = max(interval.latency_max, seconds)
        interval.tokens += tokens[0] + tokens[1]

    def failed(self, number: int) -> None:
        with self._lock:
            pending = self._land(number)
            if pending is not None:
                self._totals["failures"] += 1
                self._queue.failed(pending, time.monotonic())
                self._queue.shrink()

    def _land(self, number: int) -> Pending | None:
        pending = self._flight.pop(number, None)
        if pending is not None:
            self._flying.pop(pending.items, None)
        return pending

    @property
    def in_flight(self) -> int:
        return len(self._flight)

    @property
    def queued(self) -> int:
        return len(self._queue)

    def poll(self) -> list[Labelled]:
        with self._lock:
            ready, self._ready = self._ready, []
            return ready

    def settle(self, item: Items) -> None:
        """Removes texts whose label is known."""
        with self._lock:
            self._settled.add(hash(item))

    def metrics(self) -> dict[str, float]:
        with self._lock:
            now, interval, totals = time.monotonic(), self._interval, self._totals
            self._interval = _Interval(now)
            tokens = totals["prompt_tokens"] + totals["completion_tokens"]
            prices = self._prices or Prices(0.0, 0.0, 0.0)
            figures = {name: float(value) for name, value in totals.items() if "_tokens" not in name}
            figures |= {
                "dropped": float(totals["dropped"] + self._queue.dropped),
                "queued": float(len(self._queue)),
                "in_flight": float(len(self._flight)),
                "tokens": float(tokens),
                "tokens_per_second": interval.tokens / max(now - interval.since, 1e-9),
                "latency_mean": interval.latency_sum / interval.latencies if interval.latencies else math.nan,
                "latency_max": interval.latency_max if interval.latencies else math.nan,
                "cost": prices.of(
                    totals["prompt_tokens"], totals["completion_tokens"], totals["cached_tokens"]
                ),
                "server_up": float(self.server_up),
                "server_seconds": max(0.0, time.time() - self.server_since),
            }
            return {f"annotator/{name}": value for name, value in figures.items()}

    def state(self) -> dict[str, Any]:
        with self._lock:
            # In the order of their arrival: a queue that asks the newest first does so again. The published one keeps no
            # such number; of its entries the newest were taken first.
            waiting = sorted(
                [*self._queue, *reversed(self._flight.values())], key=lambda pending: pending.met
            )
            # Answers not yet returned by `poll`; a resumed run looks up single texts without a label by itself.
            untaken = self._ready if self._form is PAIR else []
            return {
                "pending": [
                    # The steps were counted over all its forms together.
                    [list(item), 0 if place else pending.count, pending.score]
                    for pending in waiting
                    for place, item in enumerate(pending.met_as or (pending.items,))
                ],
                "ready": [list(label) for label in untaken],
                "totals": {**self._totals, "dropped": self._totals["dropped"] + self._queue.dropped},
                "step": self._step,
            }

    def restore(self, state: dict[str, Any]) -> None:
        with self._lock:
            self._totals |= {name: state["totals"].get(name, 0) for name in _TOTALS}
            self._step = state["step"]
            # Before the queue: reported labels are not asked again.
            for item, *answer in state.get("ready", []):
                label = Labelled(tuple(item), *answer)
                self._ready.append(label)
                if not self._published:
                    self._settled.add(hash(label.item))
            for item, count, score in state["pending"]:
                self._enqueue(tuple(item), count, score)
            self._queue.shrink()


def labelled(
    form: Form, item: Items, answer: StoredAnswer, turned: bool, tokens: int = 0, seconds: float = 0.0
) -> Labelled:
    """The label of texts from the answer about them, or about their reverse order (`turned`)."""
    label, p = answer.label, answer.probabilities
    probability = None
    if p is not None:
        probability = p[FIRST] + p[TIE] / 2 if form is PAIR else p[YES]
        probability = 1.0 - probability if turned else probability
    if turned:
        label = int(TURNED[label])
    return Labelled(item, label, probability, seconds, tokens)
