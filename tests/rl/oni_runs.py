"""Small runs that learn their reward, and a source of labels whose answers take a number of
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from ml_collections import ConfigDict

from motif_jax.core.interruption import never
from motif_jax.core.verdicts import FIRST, PAIR, SECOND, TIE, Form
from motif_jax.oni import check_reward, online
from motif_jax.oni.label_queue import Label
from tests.play.agent_runs import changed
from tests.reward_fixtures import load_config

Items = tuple[str, ...]


def oni_config(kind: str, **changes: Any) -> ConfigDict:
    """The plain config on Recall-v0 at the size of a test; `changes` are dotted keys with '__' for
    the dots.
    """
    recall = {
        "environment__name": "Recall-v0", "environment__max_episode_steps": 100, "serial": True, "rollout": 8,
        "train_for_env_steps": 600, "batch_size": 48, "network__hidden_size": 8, "network__flat_sizes": (8,),
        "actors__workers": 1, "actors__envs_per_worker": 6, "actors__warmup_steps": 6, "devices__learner": "0",
        "log_every_seconds": 1e-9, "reward__kind": kind,
    }  # fmt: skip
    return changed(load_config("oni", ""), **{**recall, **changes})


def verdict(items: Items) -> int:
    """Whether a text ends with an even digit; of two, the one whose text is longer."""
    if len(items) == 1:
        return int(items[0][-1:] in tuple("02468"))
    first, second = map(len, items)
    if first == second:
        return TIE
    return FIRST if first > second else SECOND


class Answers:
    """A `LabelService` that answers each question once, `delay` polls after it was asked; `store`
    outlives it.
    """

    def __init__(self, delay: int, store: dict[Items, int], form: Form) -> None:
        self.delay = delay
        self.store = store
        self.form = form
        self.waiting: dict[Items, int] = {}
        self.asked: list[Items] = []
        self.scores: list[Any] = []
        self.answered: set[Items] = set()
        self.paid: set[Items] = set()  # before the run was ended
        self.polls = 0
        self.started = self.closed = False

    def start(self, stopped: Callable[[], bool] = never) -> None:
        self.started = True
        self.stopped = stopped

    def enqueue(
        self, items: Sequence[Items], counts: Sequence[int], scores: Any, step: int
    ) -> None:
        assert len(items) == len(counts) == len(set(items))
        assert self.form is PAIR or not self.answered & set(items), "what has a label is not asked"
        self.scores.append(scores)
        for item in items:
            if item not in self.waiting and item not in self.answered | self.paid:
                self.waiting[item] = self.polls + (1 if item in self.store else self.delay)
                self.asked += [] if item in self.store else [item]

    def poll(self) -> list[Label]:
        self.polls += 1
        due = [item for item, at in self.waiting.items() if at <= self.polls]
        for item in due:
            del self.waiting[item]
            self.answered.add(item)
            self.store[item] = verdict(item)
        return [Label(item, verdict(item), float(verdict(item)) * 0.75, 0.5, 7) for item in due]

    def queued(self) -> int:
        return len(self.waiting)

    def in_flight(self) -> int:
        return 0

    def metrics(self) -> dict[str, float]:
        figures = {
            "questions": len(self.asked),
            "queued": self.queued(),
            "in_flight": self.in_flight(),
        }
        return {f"annotator/{name}": float(value) for name, value in figures.items()}

    def state(self) -> dict[str, Any]:
        return {"waiting": [list(item) for item in self.waiting]}

    def mark_answered(self, labels: Sequence[Label]) -> None:
        self.paid |= {label.items for label in labels}

    def count_paid(self, labels: Sequence[Label]) -> None:
        assert {label.items for label in labels} <= self.paid

    def restore(self, state: dict[str, Any], later: Sequence[Label] = ()) -> None:
        assert not self.started
        self.mark_answered(later)
        for item in state["waiting"]:
            if tuple(item) not in self.paid:
                self.waiting[tuple(item)] = self.polls + self.delay

    def close(self) -> None:
        self.closed = True


class Annotator:
    """Makes the sources of a test's runs; keeps them, and what they share."""

    def __init__(self, delay: int = 2) -> None:
        self.delay = delay
        self.store: dict[Items, int] = {}
        self.made: list[Answers] = []

    def make_source(self, config: Any, form: Form, workdir: Any = None) -> Answers:
        del config, workdir
        self.made.append(Answers(self.delay, self.store, form))
        return self.made[-1]


def answer(monkeypatch: pytest.MonkeyPatch, delay: int = 2) -> Annotator:
    """Lets runs ask an `Annotator`."""
    annotator = Annotator(delay)
    for module in (online, check_reward):
        monkeypatch.setattr(module, "LabelService", annotator.make_source)
    return annotator
