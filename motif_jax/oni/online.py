"""The base of rewards that learn from labels while the agent trains (Klissarov et al., ONI).

Before a batch is paid, the new labels take effect; then its texts are paid, and those without a label are queued as questions.
One host learns the reward. A run resumes with the labels and parameters of its checkpoint.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import SINGLE, Form
from motif_jax.envs import registry
from motif_jax.motif.annotation.captions import decode_message
from motif_jax.oni import label_config as online
from motif_jax.oni.label_log import FILE, LabelLog, read_labels
from motif_jax.oni.label_queue import Label
from motif_jax.oni.label_service import LabelService
from motif_jax.oni.learning_metrics import LearningMetrics
from motif_jax.oni.message_stats import NO_LABEL, MessageStats
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.intrinsic import BatchMessages, ObservationSpec, RewardKind, RewardSetup
from motif_jax.rl.message_table import Values

_LOG_REMEDY = "restore a copy of it, or start the run again in another --workdir"


class OnlineReward(RewardKind):
    """A reward that learns from labels. A kind defines what a label changes (`take`) and what a text is worth (`values`)."""

    keeps_state = True
    form: Form = SINGLE
    # Whether it scores questions by its uncertainty.
    doubts = False

    def __init__(self, setup: RewardSetup) -> None:
        if setup.run is None:
            raise UserError(
                f"config.reward.kind='{setup.config.kind}': must be another here: it is learned while an agent trains"
            )
        assert setup.spec.text_field is not None
        run = setup.run
        self.config, self.run, self.fields = setup.config, run, (setup.spec.text_field,)
        self.description = f"{setup.config.kind}, learned online"
        # The batcher's thread pays; the main thread saves and logs.
        self._lock = threading.Lock()
        self.stats = MessageStats()
        # Environment steps of the run before the next batch, and the number of changes of the reward.
        self.step = self.version = 0
        # Questions in flight when labels were last collected.
        self.asking = 0
        self._changed = self._labels = 0
        self.learning = LearningMetrics(self.form)
        self.source = LabelService(online.in_run(run.config, run.folder), self.form)
        self._log = LabelLog(run.folder / FILE)
        # Logged labels from after the checkpoint that the run resumes from.
        self._later: list[Label] = []
        self._restored = False

    @classmethod
    def check_run(cls, config: AgentConfig, spec: ObservationSpec) -> None:
        registry.require_text(config.environment.name, spec.text_field)
        sure = config.queue.order == "uncertain" and not cls.doubts
        allowed = f"frequent or newest: a reward of kind '{config.reward.kind}' is sure of every label"
        checks.require(not sure, "queue.order", config.queue.order, allowed)
        hosts = config.hosts.count or 1
        allowed = f"1: a reward of kind '{config.reward.kind}' is learned by one host with all its devices"
        checks.require(hosts == 1, "hosts.count", hosts, allowed)
        online.check(config, cls.form)

    @classmethod
    def make(cls, setup: RewardSetup) -> OnlineReward:
        return cls(setup)

    def start(self) -> None:
        """Starts the annotator; raises where its server does not answer or the run is to stop."""
        if not self._restored:
            self._later = self._log.rewind(0)
        self.source.start(self.stopped)

    def close(self) -> None:
        self.source.close()
        self._log.close()

    # Each kind defines:

    def take(self, labels: Sequence[Label]) -> list[Label]:
        """Learns labels; returns those that changed the data set. By default the newest label of a single text counts."""
        taken = []
        for label in labels:
            row = self.stats.rows(label.items, label.step, label.number)[0]
            if self.stats.label[row] == label.label:
                continue
            self.stats.label[row] = label.label
            self.stats.probability[row] = np.nan if label.probability is None else label.probability
            taken.append(label)
        return taken

    def advance(self, arrived: int) -> bool:
        """Called before each batch is paid, with the number of new labels; returns whether the parameters changed."""
        return False

    def values(self, texts: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Values float32 [N] of a batch's texts uint8 [N, L], whose rows of `stats` are `rows`, under the present version."""
        raise NotImplementedError

    def questions(
        self, batch: BatchMessages, rows: np.ndarray
    ) -> tuple[list[tuple[str, ...]], list[int], Sequence[float] | None]:
        """Questions about a batch whose texts are `rows` of `stats`: items, counts, scores."""
        missing = self.stats.label[rows] == NO_LABEL
        items: list[tuple[str, ...]] = [(self.stats.texts[row],) for row in rows[missing].tolist()]
        return items, batch.counts[missing].tolist(), None

    def own_state(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The kind's part of a checkpoint: nested dictionaries of arrays, and JSON-able data; None for nothing."""
        return None

    def restore_own(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        raise NotImplementedError

    # Shared by all kinds:

    def pay(self, batch: BatchMessages) -> Values:
        begin = time.perf_counter()
        with self._lock:
            values, valuing = self._pay(batch)
            self.learning.spent(time.perf_counter() - begin - valuing)
        return values

    def _pay(self, batch: BatchMessages) -> tuple[Values, float]:
        shown = batch.counts > 0
        discounted = batch.counts if batch.discounted is None else batch.discounted
        parts = batch.texts[shown], batch.counts[shown]
        seen = BatchMessages(*parts, batch.steps, batch.number, discounted[shown])
        stats, rows = self.stats, self.stats.rows(map(decode_message, seen.texts), self.step, batch.number)
        # Two rows of a batch may be the same text: they differ in bytes that annotators do not read.
        np.add.at(stats.count, rows, seen.counts)
        self._learn(batch.number)
        begin = time.perf_counter()
        values = np.zeros(len(batch.texts), np.float32)
        values[shown] = paid = self.values(seen.texts, rows, seen.counts)
        valuing = time.perf_counter() - begin
        np.add.at(stats.earned, rows, paid * seen.discounted)
        labelled = stats.label[rows] != NO_LABEL
        first = stats.use(rows[labelled])
        self.learning.paid(seen.counts, labelled, paid, batch.number - self._changed)
        self.learning.used(batch.number - stats.first_number[first], time.time() - stats.first_time[first])
        items, counts, scores = self.questions(seen, rows)
        if items:
            self.source.enqueue(items, counts, scores, self.step)
        self.step += batch.steps
        return Values(values, self.version), valuing

    def lookup(self, texts: np.ndarray) -> Values:
        rows = [self.stats.row(decode_message(text)) for text in texts]
        known = np.array([row is not None for row in rows], bool)
        values = np.zeros(len(texts), np.float32)
        if known.any():
            found = np.array([row for row in rows if row is not None])
            values[known] = self.values(texts[known], found, np.zeros(len(found), int))
        return Values(values, self.version)

    def _learn(self, number: int) -> None:
        # Before the answers are taken: an answer that comes meanwhile still counts as in flight.
        self.asking = self.source.in_flight()
        labels, self._later = [*self._later, *self.source.poll()], []
        taken = self.take([self._dated(label, number) for label in labels])
        if self.advance(len(taken)) or taken:
            self.version, self._changed = self.version + 1, number
        self._labels += len(taken)
        self.learning.labelled(taken)
        self._log.add(taken)

    def _dated(self, label: Label, number: int) -> Label:
        rows = self.stats.rows(label.items, self.step, number)
        return label._replace(number=number, step=self.step, met=int(self.stats.first_step[rows].max()))

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint; the log has reached the disk when this returns."""
        with self._lock:
            arrays, own = self.own_state() or (None, None)
            book = {
                "length": self._log.length(),
                "labels": self._labels,
                "step": self.step,
                "version": self.version,
                "changed": self._changed,
                "own": own,
                "source": self.source.state(),
            }
            columns = self.stats.columns()
        self._log.sync()
        packed = np.frombuffer(json.dumps(book).encode(), np.uint8)
        state = {"book": packed, "met": MessageStats.pack(columns)}
        return state if arrays is None else {**state, "own": arrays}

    def restore(self, state: dict[str, Any]) -> None:
        """Resumes from a checkpoint, and removes later labels from the log."""
        try:
            self._restore(state)
        except UserError:
            self.close()
            raise

    def _restore(self, state: dict[str, Any]) -> None:
        book = json.loads(np.asarray(state["book"]).tobytes())
        if self._log.length() < book["length"]:
            raise UserError(f"{self._log.path} is shorter than the checkpoint says: {_LOG_REMEDY}")
        self._later = self._log.rewind(book["length"])
        labels = read_labels(self._log.path, book["length"], book["labels"], "the checkpoint", _LOG_REMEDY)
        self.stats = MessageStats.unpack(np.asarray(state["met"]))
        self.stats.label[:], self.stats.probability[:] = NO_LABEL, np.nan  # the log has them
        self.take(labels)
        self.step, self.version = book["step"], book["version"]
        self._changed, self._labels = book["changed"], book["labels"]
        self.learning.restore(labels)
        if book["own"] is not None:
            self.restore_own(state["own"], book["own"])
        self.source.restore(book["source"])
        self._restored = True

    def metrics(self) -> dict[str, float]:
        with self._lock:
            seen = len(self.stats)
            labelled = self.stats.label[:seen] != NO_LABEL
            return {
                **self.learning.read(),
                "reward/texts_met": float(seen),
                "reward/texts_labelled_share": float(np.mean(labelled)) if seen else 0.0,
                **self.source.metrics(),
            }
