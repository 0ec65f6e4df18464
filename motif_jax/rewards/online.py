"""A reward that learns from labels while the agent trains (Klissarov et al., ONI): what all its kinds share.

Before a batch is paid, the labels that have come are taken up; then its texts are paid, and those without a label are
asked about. Whatever changes the reward is written to the label log with the number of the batch. One host learns it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.datasets.verdicts import SINGLE, Form
from motif_jax.envs import registry
from motif_jax.labels import online
from motif_jax.labels.captions import decode_message
from motif_jax.rewards.intrinsic import IntrinsicReward, Met, ObservationSpec, RewardSetup
from motif_jax.rewards.label_log import (
    FILE,
    Earnings,
    Label,
    LabelLog,
    Payment,
    RewardSteps,
    open_log,
    read_labels,
    read_log,
)
from motif_jax.rewards.message_table import Values
from motif_jax.rewards.moment import Book, Moments, RewardSnapshot
from motif_jax.rewards.telemetry import LearningTelemetry
from motif_jax.rewards.texts_met import TextsMet
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError

if TYPE_CHECKING:
    from motif_jax.labels.online import Labelled, LabelSource

_PARTS = 10
# Texts whose earnings are written down then.
_BEST = 100
_LOG_REMEDY = "put it back from a copy, or start the run again in another --workdir"


class OnlineReward(IntrinsicReward):
    """A reward that learns from labels. A kind defines what a label changes (`take`) and what a text is worth (`values`).

    Attributes:
      form: of the questions.
      met: the texts that the agent has met.
      step: environment steps of the run before the next batch.
      version: counts the changes of the reward.
    """

    keeps_state = True
    form: Form = SINGLE
    # Whether it is less sure of some questions than of others.
    doubts = False

    def __init__(self, setup: RewardSetup) -> None:
        if setup.run is None:
            raise UserError(f"config.reward.kind='{setup.config.kind}': is learned while an agent trains")
        assert setup.spec.text_field is not None
        run = setup.run
        self.config, self.run, self.fields = setup.config, run, (setup.spec.text_field,)
        self.description = f"{setup.config.kind}, learned online"
        # As many batches as may be made beyond the one before which a checkpoint lies: at the end of a run those that wait are
        # taken out before it is written, which lets as many others be made.
        self._ahead = 2 * run.waiting + 3
        self.met = TextsMet(self._ahead)
        self.step = self.version = 0
        # Questions that were being asked when labels were heard last.
        self.asking = 0
        self._changed = self._labels = 0
        self.telemetry = LearningTelemetry(self.form)
        self.source: LabelSource = online.make_source(online.in_run(run.config, run.folder), self.form)
        self._log: LabelLog = open_log(run.folder / FILE)
        # Questions whose labels lay behind the checkpoint, and their answers, which the store has.
        self._lost: list[tuple[str, ...]] = []
        self._stored: list[Labelled] = []
        self._restored = False
        self._moments = Moments(self._ahead)

    @classmethod
    def check_run(cls, config: ConfigDict, spec: ObservationSpec) -> None:
        """See `IntrinsicReward.check_run`."""
        registry.require_text(config.environment.name, spec.text_field)
        sure = config.queue.order == "uncertain" and not cls.doubts
        allowed = f"frequent or newest: a reward of kind '{config.reward.kind}' is sure of every label"
        checks.require(not sure, "queue.order", config.queue.order, allowed)
        hosts, allowed = (
            config.hosts.count or 1,
            f"1: a reward of kind '{config.reward.kind}' is learned by one host",
        )
        checks.require(hosts == 1, "hosts.count", hosts, f"{allowed}, with all of its devices")
        online.check(config, cls.form)

    @classmethod
    def make(cls, setup: RewardSetup) -> OnlineReward:
        """See `IntrinsicReward.make`."""
        return cls(setup)

    def start(self) -> None:
        """See `IntrinsicReward.start`; a server that does not answer ends the start, or the wish to stop."""
        if not self._restored:
            self._lost = self._log.cut(0)
        self.source.start(self.stopped)
        self._stored = self.source.known(list(dict.fromkeys([*self.unlabelled(), *self._lost])))
        self._lost = []

    def close(self) -> None:
        """Ends the annotator and lets go of the log."""
        self.source.close()
        self._log.close()

    # What the kinds say.

    def take(self, labels: Sequence[Label]) -> list[Label]:
        """Takes up labels; returns those that changed the data set. Here those of single texts: the newest counts."""
        taken = []
        for label in labels:
            row = self.met.rows(label.items, label.step, label.number)[0]
            probability = np.nan if label.probability is None else label.probability
            if self.met.label[row] == label.label:
                continue
            self.met.label[row], self.met.probability[row] = label.label, probability
            taken.append(label)
        return taken

    def advance(self, number: int, arrived: int) -> RewardSteps | None:
        """Called before batch `number` is paid, after `arrived` labels: the gradient steps by which it pays from now on, if any ended."""
        del number, arrived
        return None

    def values(self, texts: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Values float32 [N] of a batch's texts uint8 [N, L], whose rows of `met` are `rows`, under the present version."""
        raise NotImplementedError

    def questions(
        self, met: Met, rows: np.ndarray
    ) -> tuple[list[tuple[str, ...]], list[int], Sequence[float] | None]:
        """What is asked about a batch whose texts are `rows` of `met`: items, counts, scores."""
        missing = self.met.label[rows] < 0
        items: list[tuple[str, ...]] = [(self.met.texts[row],) for row in rows[missing].tolist()]
        return items, met.counts[missing].tolist(), None

    def own(self) -> Any:
        """What the kind adds to a `RewardSnapshot`; None for nothing."""
        return None

    def pack_own(self, own: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a checkpoint holds of it: nested dictionaries of arrays, and JSON-able data."""
        raise NotImplementedError

    def take_own(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Takes up what `pack_own` gave, after the labels."""
        raise NotImplementedError

    # What all kinds do.

    def pay(self, met: Met) -> Values:
        """See `IntrinsicReward.pay`."""
        begin = time.perf_counter()
        shown = met.counts > 0
        discounted = met.counts if met.discounted is None else met.discounted
        seen = Met(met.texts[shown], met.counts[shown], met.steps, met.number, discounted[shown])
        rows = self.met.rows(map(decode_message, seen.texts), self.step, met.number)
        self.met.show(rows, seen.counts, met.number)
        self._change(met.number)
        merged = time.perf_counter()
        values = np.zeros(len(met.texts), np.float32)
        values[shown] = paid = self.values(seen.texts, rows, seen.counts)
        valued = time.perf_counter()
        self._note(seen, rows, paid)
        self._ask(seen, rows)
        before = self.step
        self.step += met.steps
        self._sum_up(before, met.number + 1)
        version = self.version
        self._moments.add(self._moment(met.number + 1))
        self.telemetry.spent(time.perf_counter() - begin - (valued - merged))
        return Values(values, version)

    def _ask(self, met: Met, rows: np.ndarray) -> None:
        items, counts, scores = self.questions(met, rows)
        if items:
            self.source.meet(items, counts, scores, self.step)

    def lookup(self, texts: np.ndarray) -> Values:
        """See `IntrinsicReward.lookup`; of texts that were never met too."""
        rows = [self.met.row(decode_message(text)) for text in texts]
        known = np.array([row is not None for row in rows], bool)
        values = np.zeros(len(texts), np.float32)
        if known.any():
            values[known] = self.values(
                texts[known], np.array([row for row in rows if row is not None]), np.zeros(known.sum(), int)
            )
        return Values(values, self.version)

    def _change(self, number: int) -> None:
        """Takes up what takes effect before batch `number`."""
        taken = self.take([self._dated(label, number) for label in self._arrived(number)])
        training = self.advance(number, len(taken))
        if taken or training:
            self.version, self._changed = self.version + 1, number
        self._labels += len(taken)
        self.telemetry.labelled(taken)
        self._log.append(
            [*(self._dated(label, number) for label in taken), *([training] if training else [])]
        )

    def _arrived(self, number: int) -> list[Label]:
        """The labels that have come."""
        # Before the answers are taken: one that comes meanwhile is still counted as being asked.
        self.asking = self.source.in_flight()
        arrived, self._stored = [*self._stored, *self.source.poll()], []
        return [_as_label(one, number, self.step) for one in arrived]

    def _dated(self, label: Label, number: int) -> Label:
        """The label with when it takes effect, and when its texts had been met."""
        rows = self.met.rows(label.items, self.step, number)
        return label._replace(number=number, step=self.step, met=int(self.met.first_step[rows].max()))

    def _sum_up(self, before: int, number: int) -> None:
        """Writes down what texts have earned where a tenth of the run ended since step `before`."""
        total = self.run.config.train_for_env_steps
        if min(self.step, total) * _PARTS // total > before * _PARTS // total:
            self._log.append([Earnings(number, self.step, *self.met.most_earned(_BEST))])

    def _note(self, met: Met, rows: np.ndarray, paid: np.ndarray) -> None:
        """Keeps account of what a batch was paid."""
        number = met.number
        if new := self.met.pay(rows, paid, paid * met.discounted):
            self._log.append([Payment(number, self.step, new)])
        labelled = self.labelled(rows)
        first = self.met.use(rows[labelled])
        self.telemetry.paid(met.counts, labelled, paid, number - self._changed)
        self.telemetry.used(number - self.met.first_number[first], time.time() - self.met.first_time[first])

    def unlabelled(self) -> list[tuple[str, ...]]:
        """Everything met so far that may have been asked about and has no label."""
        return [(text,) for text, label in zip(self.met.texts, self.met.label, strict=False) if label < 0]

    def labelled(self, rows: np.ndarray) -> np.ndarray:
        """Which of the texts at `rows` have a label: bool [N]."""
        return np.asarray(self.met.label[rows] >= 0)

    def _moment(self, number: int) -> RewardSnapshot:
        return RewardSnapshot(
            number, self._log.length, self._labels, self.step, self.version, self._changed, self.own()
        )

    def state(self, number: int) -> dict[str, Any]:
        """See `IntrinsicReward.state`; the log has reached the disk when it returns."""
        moment, met = self._moments.before(number), self.met.pack(number)
        self._log.sync()
        arrays, own = (None, None) if moment.own is None else self.pack_own(moment.own)
        book = Book(moment._replace(own=None), self.source.state(), own).pack()
        return {"book": book, "met": met, **({} if arrays is None else {"own": arrays})}

    def restore(self, state: dict[str, Any]) -> None:
        """See `IntrinsicReward.restore`; cuts the label log to what the checkpoint knows."""
        try:
            self._restore(state)
        except UserError:
            self.close()
            raise

    def _restore(self, state: dict[str, Any]) -> None:
        moment, source, own = Book.unpack(state["book"])
        if self._log.length < moment.length:
            raise UserError(f"{self._log.path} is shorter than the checkpoint says: {_LOG_REMEDY}")
        self._lost = self._log.cut(moment.length)
        self.met = TextsMet.unpack(np.asarray(state["met"]), self._ahead)
        # What was met behind the checkpoint is met again; what is known of it comes from the log alone.
        self.met.forget()
        path, length = self._log.path, moment.length
        labels = read_labels(path, length, moment.labels, "the checkpoint", _LOG_REMEDY)
        self.take(labels)
        for record in read_log(path, length):
            if isinstance(record, Payment):
                self.met.paid[self.met.rows(record.texts, record.step, record.number)] = True
        self.step, self.version = moment.step, moment.version
        self._changed, self._labels = moment.changed, moment.labels
        self.telemetry.restore(labels)
        if own is not None:
            self.take_own(state["own"], own)
        self._moments.begin(moment._replace(own=self.own()))
        self.source.restore(source)
        self._restored = True

    def metrics(self) -> dict[str, float]:
        """See `IntrinsicReward.metrics`."""
        met = len(self.met)
        return {
            **self.telemetry.read(),
            "reward/texts_met": float(met),
            "reward/texts_labelled_share": float(np.mean(self.met.label[:met] >= 0)) if met else 0.0,
            **self.source.metrics(),
        }


def _as_label(one: Labelled, number: int, step: int) -> Label:
    return Label(
        number, step, one.item, one.label, one.probability, 0, one.latency_seconds, one.tokens
    )  # fmt: skip
