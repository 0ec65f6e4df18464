"""Bookkeeping of a `LabelService`: queued, in-flight and answered questions, and their cost."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from motif_jax.core.verdicts import FIRST, PAIR, TIE, UNKNOWN, YES, Form
from motif_jax.motif.annotation.annotator import Prices
from motif_jax.motif.annotation.labels import TURNED
from motif_jax.motif.annotation.questions import QuestionHasher, is_reversed
from motif_jax.motif.annotation.store import StoredAnswer
from motif_jax.oni.config import Queue
from motif_jax.oni.question_queue import Items, Pending, PublishedQueue, QuestionQueue

# Totals of a run, kept in checkpoints (see docs/metrics.md).
_TOKENS = ("prompt", "completion", "cached")
_TOTALS = "questions answers from_store ties unknown cut given_up failures dropped".split()
_TOTALS += [f"{name}_tokens" for name in _TOKENS]


class Label(NamedTuple):
    """The label of one question, never unknown; its probability is of yes, or P(first) + P(tie) / 2 for two texts.

    `seconds` and `tokens` are 0 for questions that were not sent. `number` is the index of the first batch that is paid with it,
    `step` the run's environment steps before that batch, `met` those before the batch that showed the text first.
    """

    items: Items
    label: int
    probability: float | None = None
    seconds: float = 0.0
    tokens: int = 0
    number: int = 0
    step: int = 0
    met: int = 0


class LabelBookkeeper:
    """Counts and queue of a `LabelService`; thread safe.

    Each distinct question is queued once, and not again while in flight or answered. Two texts are asked in one order, drawn
    by their hash, whose answer serves both. Equal texts are a tie without asking. `published` (compat.oni_requeue): all as published.
    """

    def __init__(
        self,
        queue: Queue,
        attempts: int,
        published: bool,
        form: Form,
        identity: Mapping[str, Any],
        prices: Prices | None,
    ) -> None:
        self._form, self._hasher, self._prices = form, QuestionHasher(identity), prices
        self._published = published
        self._queue: QuestionQueue | PublishedQueue = QuestionQueue(queue.size, queue.order)
        if self._published:
            self._queue = PublishedQueue(queue.size, queue.batch)
        self._batch, self._budget, self._attempts = queue.batch, queue.budget, attempts
        self._lock = threading.Lock()
        # Question in flight -> True, in the order of their sending.
        self._flight: dict[Pending, bool] = {}
        self._flying: dict[Items, Pending] = {}
        # Hashes of the texts with a label.
        self._settled: set[int] = set()
        self._ready: list[Label] = []
        self._step = 0
        self._totals = dict.fromkeys(_TOTALS, 0)
        # The last row of metrics: its time, and seconds and tokens of each answer since.
        self._since, self._recent = time.monotonic(), list[tuple[float, int]]()
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
        if isinstance(self._queue, PublishedQueue):
            self._queue.enqueue(item, count)
            return
        if hash(item) in self._settled:
            return
        if len(item) > 1 and item[0] == item[1]:
            self._settled.add(hash(item))
            self._totals["ties"] += 1
            self._ready.append(Label(item, TIE, 0.5))
            return
        question = self._question(item)
        pending = self._flying.get(question) or self._queue.enqueue(question, count, score)
        if self._form is PAIR and item not in pending.met_as:
            pending.met_as += (item,)

    def _question(self, item: Items) -> Items:
        turned = self._form is PAIR and not self._published and is_reversed(self._hasher, *item)
        return item[::-1] if turned else item

    def take(self, most: int) -> list[Pending]:
        with self._lock:
            if self._published:  # one whole call after another
                most = 0 if self._flight else self._batch
            taken = self._queue.take(min(most, self._allowed()), time.monotonic())
            for pending in taken:
                self._flight[pending] = True
                self._flying[pending.items] = pending
            return taken

    def _allowed(self) -> int:
        budget, asked, flying = self._budget, self._totals["questions"], len(self._flight)
        tokens = self._totals["prompt_tokens"] + self._totals["completion_tokens"]
        each = max(tokens / max(asked, 1), 1e-9)
        # At first the cost of a question is still unknown; published calls are whole.
        first = self._batch if self._published else 1
        left = [1 << 30]
        for unit, share in (("", 1.0), ("_per_million_steps", self._step / 1e6)):
            if (most := getattr(budget, f"questions{unit}")) is not None:
                left.append(math.floor(most * share - asked - flying))
            if (most := getattr(budget, f"tokens{unit}")) is not None:
                left.append((math.floor((most * share - tokens) / each) if asked else first) - flying)
        return max(0, min(left))

    def answered(
        self,
        pending: Pending,
        answer: StoredAnswer,
        tokens: Sequence[int] | None = None,
        seconds: float = 0.0,
        cut: int = 0,
    ) -> None:
        """Counts an answer, with all attempts of any run, and its tokens as in `Answer`, None if the store had it.

        `cut`: turns that ended before the model had answered.
        """
        with self._lock:
            was_in_flight = self._land(pending)
            self._totals["cut"] += cut
            self._count(answer, tokens, seconds)
            if was_in_flight:
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
                judged = _judged(self._form, answer, item != pending.items)
                self._ready.append(Label(item, *judged, seconds, tokens))
        self._totals["given_up"] += unknown

    def _count(self, answer: StoredAnswer, tokens: Sequence[int] | None, seconds: float) -> None:
        totals = self._totals
        if tokens is None:
            totals["from_store"] += answer.label != UNKNOWN
            return
        totals["questions"] += 1
        totals["unknown" if answer.label == UNKNOWN else "answers"] += 1
        for name, count in zip(_TOKENS, tokens, strict=True):
            totals[f"{name}_tokens"] += count
        self._recent.append((seconds, tokens[0] + tokens[1]))

    def failed(self, pending: Pending) -> None:
        with self._lock:
            if self._land(pending):
                self._totals["failures"] += 1
                self._queue.failed(pending, time.monotonic())
                self._queue.shrink()

    def _land(self, pending: Pending) -> bool:
        self._flying.pop(pending.items, None)
        return self._flight.pop(pending, False)

    def in_flight(self) -> int:
        return len(self._flight)

    def queued(self) -> int:
        return len(self._queue)

    def poll(self) -> list[Label]:
        with self._lock:
            ready, self._ready = self._ready, []
            return ready

    def metrics(self) -> dict[str, float]:
        """Figures `annotator/` for a row of metrics (docs/metrics.md), with the same names from the first call on."""
        with self._lock:
            now, before, totals = time.monotonic(), self._since, self._all_totals()
            latencies = [seconds for seconds, _ in self._recent] or [math.nan]
            recent_tokens = sum(tokens for _, tokens in self._recent)
            self._since, self._recent = now, []
            prompt, completion, cached = (totals.pop(f"{name}_tokens") for name in _TOKENS)
            figures = totals | {
                "queued": len(self._queue),
                "in_flight": len(self._flight),
                "tokens": prompt + completion,
                "tokens_per_second": recent_tokens / max(now - before, 1e-9),
                "latency_mean": sum(latencies) / len(latencies),
                "latency_max": max(latencies),
                "cost": 0.0 if self._prices is None else self._prices.of(prompt, completion, cached),
                "server_up": self.server_up,
                "server_seconds": max(0.0, time.time() - self.server_since),
            }
            return {f"annotator/{name}": float(value) for name, value in figures.items()}

    def _all_totals(self) -> dict[str, int]:
        return self._totals | {"dropped": self._totals["dropped"] + self._queue.dropped}

    def state(self) -> dict[str, Any]:
        """Queue and spent budgets for a checkpoint; JSON-able."""
        with self._lock:
            # In the order of their arrival, so that a queue that asks the newest first does so again. Entries of the
            # published queue have no such number; it sent its newest first.
            waiting = sorted([*self._queue, *reversed(self._flight)], key=lambda pending: pending.met)
            # Answers not yet returned by `poll`; a resumed run looks up single texts without a label by itself.
            untaken = self._ready if self._form is PAIR else []
            return {
                "pending": [
                    # Only the first of its forms has the count, which is that of all together.
                    [list(item), 0 if place else pending.count, pending.score]
                    for pending in waiting
                    for place, item in enumerate(pending.met_as or (pending.items,))
                ],
                "ready": [list(label[:5]) for label in untaken],
                "totals": self._all_totals(),
                "step": self._step,
            }

    def restore(self, state: dict[str, Any]) -> None:
        """Resumes from a `state`, before any question is asked."""
        with self._lock:
            self._totals |= {name: state["totals"].get(name, 0) for name in _TOTALS}
            self._step = state["step"]
            # Before the queue: reported labels are not asked again.
            for item, *answer in state.get("ready", []):
                self._ready.append(Label(tuple(item), *answer))
                if not self._published:
                    self._settled.add(hash(tuple(item)))
            for item, count, score in state["pending"]:
                self._enqueue(tuple(item), count, score)
            self._queue.shrink()


def _judged(form: Form, answer: StoredAnswer, turned: bool) -> tuple[int, float | None]:
    """Label and probability of texts from the answer about them, or about their reverse order (`turned`)."""
    label, p = int(TURNED[answer.label]) if turned else answer.label, answer.probabilities
    if p is None:
        return label, None
    probability = p[FIRST] + p[TIE] / 2 if form is PAIR else p[YES]
    return label, 1.0 - probability if turned else probability
