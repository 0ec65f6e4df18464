"""Which questions of a training wait, in a bounded queue of distinct ones or in the published one,
and what of them is in flight and answered, and what it costs (`LabelBookkeeper`).
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import operator
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from motif_jax.core.verdicts import FIRST, PAIR, TIE, UNKNOWN, YES, Form
from motif_jax.motif.annotation.annotator import Prices
from motif_jax.motif.annotation.labels import TURNED
from motif_jax.motif.annotation.questions import QuestionHasher, is_reversed
from motif_jax.motif.annotation.store import StoredAnswer
from motif_jax.oni.config import Queue

Items = tuple[str, ...]
# Order -> attributes of `Pending`: of two questions the one with the larger is asked first.
_RANKS = {
    "frequent": ("count", "last_enqueued"),
    "newest": ("last_enqueued",),
    "uncertain": ("score", "count", "last_enqueued"),
}
# Seconds before a failed question is asked again, doubled each time: it may be the cause of the
# failure.
_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 30.0
# Totals of a run, kept in checkpoints (see docs/metrics.md).
_TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_TOTALS = (
    "questions",
    "answers",
    "from_store",
    "ties",
    "unknown",
    "cut",
    "given_up",
    "failures",
    "dropped",
    *_TOKENS,
)


@dataclasses.dataclass(slots=True, eq=False)
class Pending:
    """A question that is queued or in flight.

    Attributes:
      items: the texts in the order in which they are asked.
      count: steps that showed it.
      score: uncertainty of the reward about it.
      last_enqueued: number of the `enqueue` that showed it last.
      attempts: answers without a verdict.
      failures: failed requests.
      ready: when it may be asked again, by the clock of `take`.
      seen_orders: the items in the orders in which the training showed them, where one question
        serves several; empty if that is `items` alone.
    """

    items: Items
    count: int = 0
    score: float = 0.0
    last_enqueued: int = 0
    attempts: int = 0
    failures: int = 0
    ready: float = 0.0
    seen_orders: tuple[Items, ...] = ()


class QuestionQueue:
    """Distinct questions, in an order of `_RANKS`; `shrink` drops the last in the order beyond
    `size`.
    """

    def __init__(self, size: int, order: str = "frequent") -> None:
        self.dropped = 0
        self._size = size
        self._rank = operator.attrgetter(*_RANKS[order])
        self._waiting: dict[Items, Pending] = {}
        self._enqueue_numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._waiting.values())

    def enqueue(self, items: Items, count: int, score: float = 0.0) -> Pending:
        """Adds a question, or counts that it was shown again; the newest score is its score."""
        pending = self._waiting.setdefault(items, Pending(items))
        pending.count += count
        pending.score = score
        pending.last_enqueued = next(self._enqueue_numbers)
        return pending

    def take(self, limit: int, now: float) -> list[Pending]:
        """Removes and returns the first `limit` questions of the order that are ready at `now`
        (monotonic seconds).
        """
        ready = (pending for pending in self._waiting.values() if pending.ready <= now)
        # Ranks change with each `enqueue`, so that no order is kept.
        first = heapq.nlargest(limit, ready, key=self._rank)
        for pending in first:
            del self._waiting[pending.items]
        return first

    def give_back(self, pending: Pending) -> None:
        """Returns a question that has to be asked again."""
        self._waiting[pending.items] = pending

    def failed(self, pending: Pending, now: float) -> None:
        """Returns a question that could not be answered; it waits, so that others are tried
        first.
        """
        pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(pending.failures, 10))
        pending.failures += 1
        pending.ready = now + pause
        self.give_back(pending)

    def shrink(self) -> None:
        """Drops the last questions of the order beyond the queue's size."""
        excess = len(self._waiting) - self._size
        if excess > 0:
            for pending in heapq.nsmallest(excess, self._waiting.values(), key=self._rank):
                del self._waiting[pending.items]
            self.dropped += excess


class PublishedQueue(list[Pending]):
    """ONI's queue (compat.oni_requeue): an entry a step, the newest first. Of too many the oldest
    go.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.dropped = 0
        self._size = size

    def enqueue(self, items: Items, count: int, score: float = 0.0) -> None:
        """Adds `count` entries of a question."""
        # Objects of their own: each entry is in flight by itself.
        self += [Pending(items, count=1) for _ in range(count)]

    def take(self, limit: int, now: float) -> list[Pending]:
        """Removes and returns the `limit` newest entries, the newest first."""
        first = max(0, len(self) - limit)
        newest = self[first:]
        del self[first:]
        return newest[::-1]

    def give_back(self, pending: Pending) -> None:
        """Returns an entry that has to be asked again."""
        self.append(pending)

    def failed(self, pending: Pending, now: float) -> None:
        """Returns an entry whose request failed."""
        self.append(pending)

    def shrink(self) -> None:
        """Drops the oldest entries beyond the queue's size."""
        excess = len(self) - self._size
        # To remove from the front moves all others: an eighth of them at a time.
        if excess > self._size // 8:
            del self[:excess]
            self.dropped += excess


class Label(NamedTuple):
    """The label of one question, never unknown.

    Attributes:
      items: the text, or the two texts.
      label: index of the verdict in the question's form.
      probability: of yes, or P(first) + P(tie) / 2 for two texts; None where the annotator says
          none.
      seconds, tokens: cost of the answer; 0 for questions that were not sent.
      update_index: `BatchMessages.update_index` of the first batch that is paid with it.
      step: environment steps of the run before that batch.
      first_step: environment steps of the run before the batch that showed the text first.
    """

    items: Items
    label: int
    probability: float | None = None
    seconds: float = 0.0
    tokens: int = 0
    update_index: int = 0
    step: int = 0
    first_step: int = 0


class LabelBookkeeper:
    """Counts and queue of a `LabelService`; thread safe.

    A question goes from the queue (`enqueue`) into flight (`take`), and from there either back into
    the queue (`failed`, or `answered` without a verdict while attempts are left) or to the labels
    that `poll` returns.

    Each distinct question is queued once, and not again while in flight or answered. Two texts are
    asked in one order, drawn by their hash, whose answer serves both. Equal texts are a tie without
    asking. With `published` (compat.oni_requeue) the queue is that of the published code: an entry
    for every step, asked again however often it was answered.
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
        self._form = form
        self._hasher = QuestionHasher(identity)
        self._prices = prices
        self._published = published
        self._batch = queue.batch
        self._budget = queue.budget
        self._attempts = attempts
        self._lock = threading.Lock()

        self._queue: QuestionQueue | PublishedQueue
        if self._published:
            self._queue = PublishedQueue(queue.size)
        else:
            self._queue = QuestionQueue(queue.size, queue.order)
        # Questions in flight, in the order of their sending (a dict, as sets have no order), and by
        # their texts. The published queue may send the same texts twice, which the second has only
        # once.
        self._in_flight: dict[Pending, bool] = {}
        self._in_flight_by_items: dict[Items, Pending] = {}
        # Hashes of the texts with a label: texts take more memory, and a run may see millions.
        self._settled: set[int] = set()
        # Texts that stayed without a verdict.
        self._given_up: list[Items] = []
        # Labels that `poll` has not returned yet; and the texts of those that it had not returned
        # at the checkpoint, whose cost is in its totals.
        self._ready: list[Label] = []
        self._counted: set[Items] = set()

        # Environment steps of the run, for budgets by the step.
        self._step = 0
        self._totals = dict.fromkeys(_TOTALS, 0)
        # The time of the last row of metrics, and seconds and tokens of each answer since.
        self._last_metrics = time.monotonic()
        self._recent: list[tuple[float, int]] = []
        # Whether the annotator can be reached, and since when (Unix time).
        self.server_up = False
        self.server_since = time.time()

    def enqueue(
        self,
        items: Sequence[Items],
        counts: Sequence[int],
        scores: Sequence[float] | None,
        step: int,
    ) -> None:
        """Queues questions that `counts` steps showed each, `step` environment steps after the
        run's begin.
        """
        with self._lock:
            self._step = max(self._step, step)
            if scores is None:
                scores = [0.0] * len(items)
            for item, count, score in zip(items, counts, scores, strict=True):
                self._enqueue(item, count, score)
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
        pending = self._in_flight_by_items.get(question)
        # A question in flight is not queued again; it may be shown in its other order.
        if pending is None:
            pending = self._queue.enqueue(question, count, score)
        if self._form is PAIR and item not in pending.seen_orders:
            pending.seen_orders += (item,)

    def _question(self, item: Items) -> Items:
        """The order in which two texts are asked; a single text is itself."""
        is_turned = self._form is PAIR and not self._published and is_reversed(self._hasher, *item)
        return item[::-1] if is_turned else item

    def take(self, limit: int) -> list[Pending]:
        """Moves up to `limit` questions, as far as the budget goes, from the queue into flight;
        returns them.
        """
        with self._lock:
            left = self._affordable("", 1.0)
            left_by_steps = self._affordable("_per_million_steps", self._step / 1e6)
            if self._published:
                # The published code asks one whole call after another. Only the last one of a
                # budget is smaller, by what is left of it.
                call = min(self._batch, left)
                limit = 0 if self._in_flight or left_by_steps < call else call
            questions = self._queue.take(min(limit, left, left_by_steps), time.monotonic())
            for pending in questions:
                self._in_flight[pending] = True
                self._in_flight_by_items[pending.items] = pending
            return questions

    def _affordable(self, unit: str, scale: float) -> int:
        """How many more questions the budgets of a `unit`, times `scale`, allow, when those in
        flight have cost what a question costs on average.
        """
        num_questions = self._totals["questions"]
        in_flight = len(self._in_flight)
        tokens = self._totals["prompt_tokens"] + self._totals["completion_tokens"]
        tokens_per_question = max(tokens / max(num_questions, 1), 1e-9)

        limits = [1 << 30]
        most_questions = getattr(self._budget, f"questions{unit}")
        if most_questions is not None:
            limits.append(math.floor(most_questions * scale - num_questions - in_flight))
        most_tokens = getattr(self._budget, f"tokens{unit}")
        if most_tokens is not None:
            if num_questions:
                affordable = math.floor((most_tokens * scale - tokens) / tokens_per_question)
            else:
                # The cost of a question is still unknown: one is tried. Published calls are whole.
                affordable = self._batch if self._published else 1
            limits.append(affordable - in_flight)
        return max(0, min(limits))

    def answered(
        self,
        pending: Pending,
        answer: StoredAnswer,
        tokens: Sequence[int] | None = None,
        seconds: float = 0.0,
        cut: int = 0,
    ) -> None:
        """Counts an answer, with all attempts of any run, and its tokens as in `Answer`, None if
        the store had it.

        `cut`: turns that ended before the model had answered.
        """
        with self._lock:
            was_in_flight = self._remove_from_flight(pending)
            self._totals["cut"] += cut
            self._count(answer, tokens, seconds)
            # The answer to the first question of a start, which no training has asked, is counted
            # but makes no label.
            if was_in_flight:
                spent_tokens = 0 if tokens is None else tokens[0] + tokens[1]
                self._settle(pending, answer, spent_tokens, seconds)

    def _settle(self, pending: Pending, answer: StoredAnswer, tokens: int, seconds: float) -> None:
        """Makes labels of an answer, or queues the question again where it has no verdict."""
        is_unknown = answer.label == UNKNOWN
        if is_unknown and answer.attempts < self._attempts and not self._published:
            pending.attempts = answer.attempts
            pending.failures = 0
            self._queue.give_back(pending)
            self._queue.shrink()
            return

        for item in pending.seen_orders or (pending.items,):
            if not self._published:
                self._settled.add(hash(item))
            if not is_unknown:
                label, probability = _label_of(self._form, answer, item != pending.items)
                self._ready.append(Label(item, label, probability, seconds, tokens))
        if is_unknown:
            self._totals["given_up"] += 1
            if not self._published:
                self._given_up.extend(pending.seen_orders or (pending.items,))

    def _count(self, answer: StoredAnswer, tokens: Sequence[int] | None, seconds: float) -> None:
        is_unknown = answer.label == UNKNOWN
        if tokens is None:
            if not is_unknown:
                self._totals["from_store"] += 1
            return
        self._totals["questions"] += 1
        self._totals["unknown" if is_unknown else "answers"] += 1
        for name, count in zip(_TOKENS, tokens, strict=True):
            self._totals[name] += count
        self._recent.append((seconds, tokens[0] + tokens[1]))

    def failed(self, pending: Pending) -> None:
        """Queues a question again whose request failed."""
        with self._lock:
            if self._remove_from_flight(pending):
                self._totals["failures"] += 1
                self._queue.failed(pending, time.monotonic())
                self._queue.shrink()

    def _remove_from_flight(self, pending: Pending) -> bool:
        """Returns whether the question was in flight."""
        self._in_flight_by_items.pop(pending.items, None)
        return self._in_flight.pop(pending, False)

    def in_flight(self) -> int:
        """The number of questions that were taken, and neither answered nor failed."""
        return len(self._in_flight)

    def queued(self) -> int:
        """The number of questions that wait to be taken."""
        return len(self._queue)

    def poll(self) -> list[Label]:
        """The labels since the last call, in the order of their arrival."""
        with self._lock:
            labels = self._ready
            self._ready = []
            return labels

    def metrics(self) -> dict[str, float]:
        """Figures `annotator/` for a row of metrics (docs/metrics.md), with the same names from the
        first call on.
        """
        with self._lock:
            now = time.monotonic()
            elapsed = max(now - self._last_metrics, 1e-9)
            latencies = [seconds for seconds, _ in self._recent] or [math.nan]
            recent_tokens = sum(tokens for _, tokens in self._recent)
            self._last_metrics = now
            self._recent = []

            totals = self._all_totals()
            prompt, completion, cached = [totals.pop(name) for name in _TOKENS]
            prices = self._prices
            cost = 0.0 if prices is None else prices.of(prompt, completion, cached)
            figures = totals | {
                "queued": len(self._queue),
                "in_flight": len(self._in_flight),
                "tokens": prompt + completion,
                "tokens_per_second": recent_tokens / elapsed,
                "latency_mean": sum(latencies) / len(latencies),
                "latency_max": max(latencies),
                "cost": cost,
                "server_up": self.server_up,
                "server_seconds": max(0.0, time.time() - self.server_since),
            }
            return {f"annotator/{name}": float(value) for name, value in figures.items()}

    def _all_totals(self) -> dict[str, int]:
        """The totals with what the queue has dropped since this process began."""
        return self._totals | {"dropped": self._totals["dropped"] + self._queue.dropped}

    def state(self) -> dict[str, Any]:
        """Queue and spent budgets for a checkpoint, as an object that JSON can hold. Questions in
        flight are queued again.
        """
        with self._lock:
            # In the order of their arrival, so that a queue that asks the newest first does so
            # again. Entries of the published queue have no such number; it sent its newest first.
            waiting = sorted(
                [*self._queue, *reversed(self._in_flight)],
                key=lambda pending: pending.last_enqueued,
            )
            entries = []
            for pending in waiting:
                # Both orders of two texts are entries; only the first has the count, which is that
                # of both.
                count = pending.count
                for item in pending.seen_orders or (pending.items,):
                    entries.append([list(item), count, pending.score])
                    count = 0

            # Answers not yet returned by `poll`; a resumed run looks up single texts without a
            # label by itself.
            unreturned = self._ready if self._form is PAIR else []
            return {
                "pending": entries,
                "ready": [list(label[:5]) for label in unreturned],
                "counted": [list(label.items) for label in self._ready],
                "given_up": [list(item) for item in self._given_up],
                "totals": self._all_totals(),
                "step": self._step,
            }

    def mark_answered(self, labels: Sequence[Label]) -> None:
        """Asks no more about labels that a run got after its checkpoint. The published code asks
        again, however often it was answered.
        """
        with self._lock:
            if not self._published:
                self._settled.update(hash(label.items) for label in labels)

    def count_paid(self, labels: Sequence[Label]) -> None:
        """Counts what labels have cost that a run got after its checkpoint: no kill gives the
        budget back.
        """
        with self._lock:
            if self._published:  # its log has the first label of a text alone
                return
            # Both orders of two texts are labels of one question. Labels of the store and of equal
            # texts cost nothing.
            answered = {
                frozenset(label.items): label
                for label in labels
                if (label.seconds or label.tokens) and label.items not in self._counted
            }
            self._totals["questions"] += len(answered)
            self._totals["answers"] += len(answered)
            # The log has the sum of a question's tokens.
            self._totals["prompt_tokens"] += sum(label.tokens for label in answered.values())

    def restore(self, state: dict[str, Any], later: Sequence[Label] = ()) -> None:
        """Resumes from a `state`, before any question is asked; `later` are labels from after it,
        see `mark_answered`.
        """
        with self._lock:
            self._totals |= {name: state["totals"].get(name, 0) for name in _TOTALS}
            self._step = state["step"]
            self._counted = {tuple(items) for items in state.get("counted", [])}
            if not self._published:
                self._settled.update(hash(label.items) for label in later)
            # Before the queue: reported labels are not asked again.
            for item, *answer in state.get("ready", []):
                self._ready.append(Label(tuple(item), *answer))
                if not self._published:
                    self._settled.add(hash(tuple(item)))
            self._given_up = [tuple(item) for item in state.get("given_up", [])]
            self._settled.update(map(hash, self._given_up))
            for item, count, score in state["pending"]:
                self._enqueue(tuple(item), count, score)
            self._queue.shrink()


def _label_of(form: Form, answer: StoredAnswer, is_turned: bool) -> tuple[int, float | None]:
    """Label and probability of texts from the answer about them, or about their reverse order
    (`is_turned`).
    """
    label = int(TURNED[answer.label]) if is_turned else answer.label
    if answer.probabilities is None:
        return label, None
    if form is PAIR:
        # A tie counts half for each of the two.
        probability = answer.probabilities[FIRST] + answer.probabilities[TIE] / 2
    else:
        probability = answer.probabilities[YES]
    # The first of the question is the second of the texts.
    return label, 1.0 - probability if is_turned else probability
