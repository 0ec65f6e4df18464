"""What the hosts of a run tell each other of a reward that all of them pay by and that the first one learns.

Between two updates every host says what it would ask; the first one says which labels have come and what its training
led to. That takes effect on all hosts before the same batch: the first one that none of them can have paid yet.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from motif_jax.rewards.label_log import Label, Training


class Link(Protocol):
    """How hosts reach each other; all of them call the same in the same order, from their main threads."""

    @property
    def is_first(self) -> bool:
        """Whether this is the first host."""

    def gather(self, value: Any) -> list[Any]:
        """Every host hands in a JSON-able value and gets those of all, in their order."""

    def broadcast(self, value: np.ndarray) -> np.ndarray:
        """The first host's array, on all; every host hands in one of the same shape and type."""


class Vectors(Protocol):
    """Parameters as one vector."""

    def as_vector(self, state: Any) -> np.ndarray:
        """The parameters of a state (None: the present one) as float32 [n]."""

    def from_vector(self, vector: np.ndarray) -> Any:
        """A state with these parameters."""


class Learned(NamedTuple):
    """What gradient steps led to.

    Attributes:
      training: the steps.
      state: (params, opt_state) after them; of the other hosts' only the parameters are those of the first.
    """

    training: Training
    state: Any


class Question(NamedTuple):
    """Texts that a batch showed and that have no label: `LabelSource.meet` has the meanings."""

    items: list[tuple[str, ...]]
    counts: list[int]
    scores: list[float] | None


class Agreed(NamedTuple):
    """What takes effect before a batch, on all hosts alike.

    Attributes:
      number: of the batch.
      labels: in the order in which the first host heard of them.
      learned: by the first host, the oldest first.
      paid: raw values that the steps of earlier batches of all hosts had, batch by batch; see `Shared.pay`.
    """

    number: int
    labels: list[Label]
    learned: list[Learned]
    paid: list[np.ndarray]


class Spoken(NamedTuple):
    """What a host hands in."""

    questions: list[Question]
    steps: int
    paid: list[tuple[int, list[float], list[int]]]
    labels: list[Label]
    learned: list[Learned]


class Shared:
    """One host's side of it. The batcher's thread speaks and hears, the main thread passes on between updates.

    Args:
      ahead: so many batches may be paid before the learner has them.
    """

    def __init__(self, ahead: int) -> None:
        self._ahead, self._lock = ahead, threading.Lock()
        self._begin()
        self._due: deque[Agreed] = deque()
        # Steps of the other hosts' batches that this one does not know of yet.
        self._elsewhere = 0
        # Batch -> raw values, of hosts whose batch is not whole yet: they need not be equally far.
        self._parts: dict[int, dict[int, np.ndarray]] = {}
        self.queued = 0

    def _begin(self) -> None:
        self._spoken = Spoken([], 0, [], [], [])

    def met(self, question: Question, steps: int) -> None:
        """Says what a batch of so many steps would ask."""
        with self._lock:
            if question.items:
                self._spoken.questions.append(question)
            self._spoken = self._spoken._replace(steps=self._spoken.steps + steps)

    def pay(self, number: int, values: np.ndarray, counts: np.ndarray) -> None:
        """Says which raw values, and how often each, batch `number` had: moments are of the hosts' batches together."""
        with self._lock:
            self._spoken.paid.append((number, values.tolist(), counts.tolist()))

    def tell(self, labels: Sequence[Label], learned: Learned | None) -> None:
        """Says, on the first host, what is to take effect."""
        with self._lock:
            self._spoken.labels.extend(labels)
            self._spoken.learned.extend([] if learned is None else [learned])

    def take(self) -> Spoken:
        """What was said since the last call."""
        with self._lock:
            spoken = self._spoken
            self._begin()
            return spoken

    def agree(
        self,
        number: int,
        labels: list[Label],
        learned: list[Learned],
        paid: Sequence[Sequence[tuple[int, list[float], list[int]]]],
        elsewhere: int,
    ) -> None:
        """Takes what the hosts have passed on when the learner had been given `number` batches.

        Args:
          number: as many batches.
          labels, learned: of the first host.
          paid: of each host.
          elsewhere: steps in the other hosts' batches.
        """
        with self._lock:
            for host, batches in enumerate(paid):
                for batch, values, counts in batches:
                    rows = np.repeat(np.array(values, np.float32), counts)
                    self._parts.setdefault(batch, {})[host] = rows
            whole = sorted(batch for batch, parts in self._parts.items() if len(parts) == len(paid))
            together = [
                np.concatenate([part for _, part in sorted(self._parts.pop(batch).items())])
                for batch in whole
            ]
            self._due.append(Agreed(number + self._ahead, labels, learned, together))
            self._elsewhere += elsewhere

    def due(self, number: int) -> list[Agreed]:
        """What takes effect before batch `number`, without what was given before."""
        with self._lock:
            found = []
            while self._due and self._due[0].number <= number:
                found.append(self._due.popleft())
            return found

    def elsewhere(self) -> int:
        """Steps of the other hosts since the last call."""
        with self._lock:
            steps, self._elsewhere = self._elsewhere, 0
            return steps


def pass_on(shared: Shared, link: Link, number: int, queued: int, vectors: Vectors) -> list[Question]:
    """Lets the hosts hear each other; all call it after the same update. Returns, on the first host, what all would ask.

    Args:
      shared: of this host.
      link: to the others.
      number: of batches that the learner has been given.
      queued: questions that wait, on the first host.
      vectors: makes one of the parameters that are passed on.
    """
    spoken = shared.take()
    here = {
        "asked": [list(question) for question in spoken.questions],
        "steps": spoken.steps,
        "paid": spoken.paid,
        "labels": [list(label) for label in spoken.labels],
        "trained": [list(learned.training) for learned in spoken.learned],
        "queued": queued,
    }
    everyone = link.gather(here)
    first, learned = everyone[0], []
    for place, training in enumerate(everyone[0]["trained"]):
        if link.is_first:
            state = spoken.learned[place].state
            link.broadcast(vectors.as_vector(state))
        else:
            state = vectors.from_vector(link.broadcast(vectors.as_vector(None)))
        learned.append(Learned(Training(*training), state))
    labels = [
        Label(*fields)._replace(items=tuple(fields[Label._fields.index("items")]))
        for fields in first["labels"]
    ]
    shared.queued = first["queued"]
    steps = sum(host["steps"] for host in everyone) - spoken.steps
    shared.agree(number, labels, learned, [host["paid"] for host in everyone], steps)
    return [
        Question([tuple(item) for item in items], counts, scores)
        for host in everyone
        for items, counts, scores in host["asked"]
    ]
