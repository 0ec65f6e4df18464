"""The base of rewards that learn from labels while the agent trains (Klissarov et al., ONI), and
the kind 'retrieval'.

Before a batch is paid, the new labels take effect; then its texts are paid, and those without a
label are queued as questions. One host learns the reward. A run resumes with the labels and
parameters of its checkpoint.
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
from motif_jax.core.verdicts import SINGLE, YES, Form
from motif_jax.envs import registry
from motif_jax.motif.annotation.captions import decode_message
from motif_jax.oni import label_service
from motif_jax.oni.label_log import FILE, LabelLog, read_labels
from motif_jax.oni.label_queue import Label
from motif_jax.oni.label_service import LabelService
from motif_jax.oni.message_stats import NO_LABEL, LearningMetrics, MessageStats
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.intrinsic import BatchMessages, ObservationSpec, RewardKind, RewardSetup
from motif_jax.rl.message_table import Values

_LOG_REMEDY = "restore a copy of it, or start the run again in another --workdir"


class OnlineReward(RewardKind):
    """A reward that learns from labels. A kind defines what a label changes (`apply_labels`) and
    what a text is worth (`values`).

    Attributes:
      form: class attribute, whether its questions are about one text or about two.
      scores_questions: class attribute, whether `questions` returns scores of uncertainty
          (queue.order=uncertain).
      stats: all texts that the agent has seen.
      source: where the labels come from.
      step: environment steps of the run before the next batch.
      version: number of changes of the reward so far.
      asking: questions that were in flight when labels were last collected.
      answered: labels that arrived then, those of texts that had one too.
    """

    keeps_state = True
    reads_dir = False
    form: Form = SINGLE
    scores_questions = False

    def __init__(self, setup: RewardSetup) -> None:
        assert setup.run is not None, "it is learned while an agent trains"
        assert setup.spec.text_field is not None
        run = setup.run
        self.config = setup.config
        self.run = run
        self.fields = (setup.spec.text_field,)
        self.description = f"{setup.config.kind}, learned online"
        # The batcher's thread pays; the main thread saves and logs.
        self._lock = threading.Lock()

        self.stats = MessageStats()
        self.step = 0
        self.version = 0
        self.asking = 0
        self.answered = 0
        # The batch at which the reward last changed, and the number of labels in the log.
        self._changed = 0
        self._labels = 0
        self.learning = LearningMetrics(self.form)
        self.source = LabelService(label_service.in_run(run.config, run.folder), self.form)
        self._log = LabelLog(run.folder / FILE)
        # Logged labels from after the checkpoint that the run resumes from.
        self._later: list[Label] = []
        self._restored = False

    @classmethod
    def check_run(cls, config: AgentConfig, spec: ObservationSpec) -> None:
        registry.require_text(config.environment.name, spec.text_field)
        is_read = config.queue.order != "uncertain" or not config.compat.oni_requeue
        allowed = "frequent or newest with compat.oni_requeue, which asks the newest first"
        checks.require(is_read, "queue.order", config.queue.order, allowed)
        has_order = config.queue.order != "uncertain" or cls.scores_questions
        allowed = (
            f"frequent or newest: a reward of kind '{config.reward.kind}' is sure of every label"
        )
        checks.require(has_order, "queue.order", config.queue.order, allowed)
        hosts = config.hosts.count or 1
        allowed = f"1: a reward of kind '{config.reward.kind}' is learned by one host with all its devices"
        checks.require(hosts == 1, "hosts.count", hosts, allowed)
        label_service.check(config, cls.form)

    @classmethod
    def make(cls, setup: RewardSetup) -> OnlineReward:
        return cls(setup)

    def start(self) -> None:
        """Starts the annotator; raises where its server does not answer or the run is to stop."""
        if not self._restored:
            # A run without a checkpoint begins again, with the labels that its first try has got.
            self._later = self._log.rewind(0)
            self.source.mark_answered(self._later)
            self.source.count_paid(self._later)
        self.source.start(self.stopped)

    def close(self) -> None:
        self.source.close()
        self._log.close()

    # Each kind defines:

    def apply_labels(self, labels: Sequence[Label]) -> list[Label]:
        """Learns labels; returns those that changed the data set. By default the newest label of a
        single text counts.
        """
        changes = []
        for label in labels:
            row = self.stats.rows(label.items, label.step, label.update_index)[0]
            if self.stats.label[row] == label.label:
                continue
            self.stats.label[row] = label.label
            self.stats.probability[row] = np.nan if label.probability is None else label.probability
            changes.append(label)
        return changes

    def advance(self, arrived: int) -> bool:
        """Called before each batch is paid, with the number of new labels; returns whether the
        parameters changed.
        """
        return False

    def values(self, texts: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Values float32 [N] of a batch's texts uint8 [N, L], whose rows of `stats` are `rows`,
        under the present version.
        """
        raise NotImplementedError

    def questions(
        self, batch: BatchMessages, rows: np.ndarray
    ) -> tuple[list[tuple[str, ...]], list[int], Sequence[float] | None]:
        """Questions about a batch whose texts are `rows` of `stats`: items, counts, scores."""
        missing = self.stats.label[rows] == NO_LABEL
        items: list[tuple[str, ...]] = [(self.stats.texts[row],) for row in rows[missing].tolist()]
        return items, batch.counts[missing].tolist(), None

    def own_state(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The kind's part of a checkpoint: nested dictionaries of arrays, and JSON-able data; None
        for nothing.
        """
        return None

    def restore_own(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Restores what `own_state` returned."""
        raise NotImplementedError

    # Shared by all kinds:

    def pay(self, batch: BatchMessages) -> Values:
        """The rewards of a batch's texts, after the labels that have arrived; queues texts without
        a label as questions.

        The batcher calls it once for each batch, when it assembles the batch. A label that arrives
        after `poll` in here counts from the next batch that is assembled. A batch that already
        waits for the learner (`batch_stream.MAX_WAITING_BATCHES`) keeps its rewards: a label that
        arrives during update N counts from batch N + 1 if that is not assembled yet, else from
        N + 2. In a serial or on-policy run it is always N + 1.
        """
        begin = time.perf_counter()
        with self._lock:
            values, value_seconds = self._pay(batch)
            # A frozen reward would compute its values, too; the rest is what learning costs the
            # batch.
            self.learning.add_lost_seconds(time.perf_counter() - begin - value_seconds)
        return values

    def _pay(self, batch: BatchMessages) -> tuple[Values, float]:
        """The values of a batch, and the seconds that `values` took."""
        # Texts whose rows are all not paid have the count 0.
        is_counted = batch.counts > 0
        discounted = batch.counts if batch.discounted is None else batch.discounted
        counted = BatchMessages(
            batch.texts[is_counted],
            batch.counts[is_counted],
            batch.steps,
            batch.update_index,
            discounted[is_counted],
        )
        stats = self.stats
        rows = stats.rows(map(decode_message, counted.texts), self.step, batch.update_index)
        # Two rows of a batch may be the same text: they differ in bytes that annotators do not
        # read.
        np.add.at(stats.count, rows, counted.counts)

        self._take_arrived(batch.update_index)

        begin = time.perf_counter()
        # After the labels, and outside of the time that learning costs.
        rewards = self.values(counted.texts, rows, counted.counts)
        value_seconds = time.perf_counter() - begin
        values = np.zeros(len(batch.texts), np.float32)
        values[is_counted] = rewards
        np.add.at(stats.earned, rows, rewards * counted.discounted)

        # Also labels that came with this batch: its steps are paid with them.
        has_label = stats.label[rows] != NO_LABEL
        first_used = stats.use(rows[has_label])
        self.learning.add_batch(
            counted.counts, has_label, rewards, batch.update_index - self._changed
        )
        self.learning.add_first_uses(
            batch.update_index - stats.first_update[first_used],
            time.time() - stats.first_time[first_used],
        )

        # Without questions, too: budgets for each million steps follow the step.
        items, counts, scores = self.questions(counted, rows)
        self.source.enqueue(items, counts, scores, self.step)
        self.step += batch.steps
        return Values(values, self.version), value_seconds

    def lookup(self, texts: np.ndarray) -> Values:
        rows = [self.stats.row(decode_message(text)) for text in texts]
        was_seen = np.array([row is not None for row in rows], bool)
        values = np.zeros(len(texts), np.float32)
        if was_seen.any():
            seen_rows = np.array([row for row in rows if row is not None])
            # Counts of 0, as a lookup is not a step that moments could be taken of.
            values[was_seen] = self.values(
                texts[was_seen], seen_rows, np.zeros(len(seen_rows), int)
            )
        return Values(values, self.version)

    def _take_arrived(self, update_index: int) -> None:
        """Takes the labels that have arrived, so that the batch of update `update_index` is paid
        with them.
        """
        # Before the answers are taken: an answer that comes meanwhile still counts as in flight.
        self.asking = self.source.in_flight()
        arrived = self._arrived()
        self.answered = len(arrived)
        changes = self.apply_labels([self._dated(label, update_index) for label in arrived])
        has_advanced = self.advance(len(changes))
        if has_advanced or changes:
            self.version += 1
            # The version's age in the metrics counts from here.
            self._changed = update_index
        self._labels += len(changes)
        self.learning.add_labels(changes)
        self._log.add(changes)

    def _arrived(self) -> list[Label]:
        """The labels that count from the next batch on.

        A resumed run has labels from after its checkpoint, and takes them at once.
        """
        later = self._later
        self._later = []
        return [*later, *self.source.poll()]

    def _dated(self, label: Label, update_index: int) -> Label:
        """A label with the batch that it first counts in, and with the first step of its texts."""
        # A text that only a label names is new, too: it may come from after the checkpoint.
        rows = self.stats.rows(label.items, self.step, update_index)
        return label._replace(
            update_index=update_index,
            step=self.step,
            first_step=int(self.stats.first_step[rows].max()),
        )

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint; the log has reached the disk when this returns."""
        with self._lock:
            kind_state = self.own_state()
            book = {
                "length": self._log.length(),
                "labels": self._labels,
                "step": self.step,
                "version": self.version,
                "changed": self._changed,
                "own": None if kind_state is None else kind_state[1],
                "source": self.source.state(),
            }
            columns = self.stats.columns()
        # Without the lock, as both take long: the next batch may be paid meanwhile.
        self._log.sync()
        packed = np.frombuffer(json.dumps(book).encode(), np.uint8)
        state: dict[str, Any] = {"book": packed, "met": MessageStats.pack(columns)}
        if kind_state is not None:
            state["own"] = kind_state[0]
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Resumes from a checkpoint, and removes later labels from the log."""
        try:
            self._restore(state)
        except UserError:
            self.close()
            raise

    def _restore(self, state: dict[str, Any]) -> None:
        book = json.loads(np.asarray(state["book"]).tobytes())
        # Labels from after the checkpoint count again, and are not paid again.
        self._later = self._log.rewind(book["length"])
        labels = read_labels(
            self._log.path, book["length"], book["labels"], "the checkpoint", _LOG_REMEDY
        )
        self.stats = MessageStats.unpack(np.asarray(state["met"]))
        # The log has the labels; to apply them again restores what a kind keeps of them, too.
        self.stats.label[:] = NO_LABEL
        self.stats.probability[:] = np.nan
        self.apply_labels(labels)

        self.step = book["step"]
        self.version = book["version"]
        self._changed = book["changed"]
        self._labels = book["labels"]
        self.learning.restore(labels)
        if book["own"] is not None:
            self.restore_own(state["own"], book["own"])
        self.source.restore(book["source"], self._later)
        self.source.count_paid(self._later)
        self._restored = True

    def metrics(self) -> dict[str, float]:
        with self._lock:
            num_texts = len(self.stats)
            has_label = self.stats.label[:num_texts] != NO_LABEL
            return {
                **self.learning.read(),
                "reward/texts_met": float(num_texts),
                "reward/texts_labelled_share": float(np.mean(has_label)) if num_texts else 0.0,
                **self.source.metrics(),
            }


class RetrievalReward(OnlineReward):
    """Kind 'retrieval': a text's reward is its label, and 0 before it has one (ONI, section 4): 1
    for a text with label yes, 0 for any other.

    With `config.value` 'probability' it is the probability of yes, where the annotator has one.
    """

    def values(self, texts: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        is_yes = (self.stats.label[rows] == YES).astype(np.float32)
        if self.config.value == "label":
            return is_yes
        probability = self.stats.probability[rows]
        # NaN: the annotator gives no probability, or there is no label.
        return np.where(np.isnan(probability), is_yes, probability).astype(np.float32)
