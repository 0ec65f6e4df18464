"""Learning a reward while playing: what its annotation costs the training.

    python -m motif_jax.launch --config=configs/benchmark.py:oni

Value: environment steps a second of a training of kind `kind`, whose questions are answered by the served lexicon
(a process of its own, `latency` seconds a question). Yardstick, in turns with it: the same training with the same labels in a
table (kind table), without an annotator. Both begin when `labels` are known. With `kind=classification` the yardstick is what is left of
that when each update also takes its gradient steps of the reward, as long as they take by themselves. Besides: questions asked by
distinct messages met; from a message's first batch to the first batch that knew its label, batches and seconds (`label_delay`, of messages
that were new while this was measured; `allowed_seconds` are three latencies and two batches); share of steps labelled; time that the batcher lost, the client's processor time a question, memory; and what the published queue and ours would have asked on the
same stream of batches, if a call of 100 questions lasted `call_batches` of them. Some minutes on 2 cores.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from ml_collections import ConfigDict

from motif_jax.annotation.captions import decode_message
from motif_jax.annotation.queue import PublishedQueue, QuestionQueue
from motif_jax.annotation.queue_simulation import simulate
from motif_jax.benchmarks import _agents, result
from motif_jax.benchmarks.train import _play
from motif_jax.online import settings
from motif_jax.online.reward_schedule import draws
from motif_jax.online.reward_trainer import Job, take_steps
from motif_jax.online.system import BatchStream, System
from motif_jax.rewards.intrinsic import Met
from motif_jax.rewards.label_log import FILE, Label, read_log
from motif_jax.rewards.learned import CLASSIFICATION, RETRIEVAL
from motif_jax.rewards.message_table import Values
from motif_jax.support import config as checks
from motif_jax.support import resources
from motif_jax.support.files import atomic_write_json

_START_SECONDS = 120.0
_STEPS, _TIMED_STEPS = "reward/training_steps", 10
_CALL, _ROOM = 100, 10**6
# Texts of a batch with the steps of each.
_Rows = list[tuple[tuple[str, ...], int]]


class Batch(NamedTuple):
    """A batch that was paid: its number, when (seconds), its distinct texts uint8 [N, L], in how many steps each was met int64 [N]."""

    number: int
    time: float
    texts: np.ndarray
    counts: np.ndarray


def options() -> ConfigDict:
    """Settings: those of the training; `kind`, `latency` of the server, `labels` before the first repeat, `seconds` of each side."""
    made = _agents.training_options()
    del made.reward_dir
    own = {"kind": RETRIEVAL, "latency": 0.2, "labels": 1000, "seconds": 10.0, "call_batches": 25}
    return ConfigDict({**made.to_dict(), **own})


def check(config: ConfigDict) -> None:
    """Raises UserError for a kind that is not measured."""
    checks.choice(config, "options.kind", (RETRIEVAL, CLASSIFICATION))
    checks.positive(config, "options.call_batches")


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line."""
    options = config.options
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oni-")))
        url = stack.enter_context(_server(options.latency))
        online = System(_training(options, config.seed, folder, url), workdir=folder)
        stream = stack.enter_context(BatchStream(online))
        assert online.reward is not None
        met = _record(online.reward)
        begin, spent = time.perf_counter(), _client_seconds()
        while sum(1 for _ in _labels(folder)) < options.labels:
            _play(online, stream, 1.0)
        filled, measured_from = time.perf_counter() - begin, len(met)
        spent = _client_seconds() - spent
        asked = online.reward.metrics()["annotator/questions"]
        table = {label.items[0]: label.label for label in _labels(folder)}
        atomic_write_json(folder / "table.json", table)
        frozen = System(_training(options, config.seed, folder, None), workdir=folder)
        other = stack.enter_context(BatchStream(frozen))
        _play(frozen, other, 1.0)
        online.reward.metrics()
        alone = _step_seconds(online.reward) if options.kind == CLASSIFICATION else 0.0
        rates, baseline, rows, tables = [], [], [], []
        for _ in range(config.repeats):
            tables.append(_play(frozen, other, options.seconds)[0])
            before = online.reward.metrics()  # what waited while the other side had its turn is not counted
            updates = online.learner.version
            rates.append(_play(online, stream, options.seconds)[0])
            rows.append(online.reward.metrics())
            steps = rows[-1].get(_STEPS, 0.0) - before.get(_STEPS, 0.0)
            updates = max(1, online.learner.version - updates)
            # Seconds of an update without the reward, and of what it learns in the meantime.
            seconds = options.batch_size / tables[-1] + alone * steps / updates
            baseline.append(options.batch_size / seconds)
        labels = list(_labels(folder))
        memory = [
            (process.cmdline()[-1][-40:], process.memory_full_info().pss / 1e6)
            for process in psutil.Process().children(recursive=True)
        ]
    last = rows[-1]

    def median(name: str) -> float:
        return float(np.median([row[name] for row in rows]))

    return result(
        "oni",
        "steps/s",
        rates,
        "the same labels from a table, without an annotator"
        + (", less the gradient steps' own time" if alone else ""),
        baseline,
        options.to_dict(),
        labels=last["reward/labels"],
        questions_by_texts_met=last["annotator/questions"] / last["reward/texts_met"],
        steps_labelled_share=median("reward/steps_labelled_share"),
        label_delay=label_delay(met, measured_from, labels)
        | {"allowed_seconds": 3 * options.latency + 2 * options.batch_size / float(np.median(rates))},
        lost_share=median("reward/lost_share"),
        table_steps_per_second=float(np.median(tables)),
        gradient_step_seconds=alone,
        client_milliseconds=1e3 * spent / max(1.0, asked),
        seconds_to_labels=filled,
        annotator_megabytes=last.get("annotator/megabytes", 0.0),
        processes_megabytes=memory,
        queues=_queues(met, options.call_batches),
    )


def _record(reward: Any) -> list[Batch]:
    """Every batch that the reward pays from now on."""
    stream: list[Batch] = []
    pay = reward.pay

    def recorded(met: Met) -> Values:
        stream.append(Batch(met.number, time.perf_counter(), met.texts.copy(), met.counts.copy()))
        return pay(met)

    reward.pay = recorded
    return stream


def label_delay(stream: list[Batch], start: int, labels: list[Label]) -> dict[str, float]:
    """Medians from the first batch with a text to the first that knew its label, of texts that are new from batch `start` on."""
    known = {label.items[0]: label.number for label in labels}
    times = {batch.number: batch.time for batch in stream}
    older: set[str] = set()
    batches, seconds = [], []
    for place, batch in enumerate(stream):
        shown = {decode_message(text) for text in batch.texts[batch.counts > 0]} - older
        older |= shown
        for number in (known.get(text) for text in shown if place >= start):
            if number in times:
                batches.append(number - batch.number)
                seconds.append(times[number] - batch.time)
    if not batches:  # so few texts that all were met before
        return {"texts": 0}
    return {"texts": len(batches), "batches": float(np.median(batches)), "seconds": float(np.median(seconds))}


def _queues(stream: list[Batch], batches_a_call: int) -> dict[str, dict[str, float]]:
    """Questions by distinct ones, and the share of steps labelled in the last tenth, of the published queue and of ours."""
    rng = np.random.default_rng(0)
    batches: list[_Rows] = []
    rows: list[_Rows] = []
    for batch in stream:
        items: list[tuple[str, ...]] = [(decode_message(text),) for text in batch.texts]
        batches.append([(item, int(count)) for item, count in zip(items, batch.counts, strict=True) if count])
        # The published queue takes the newest rows: those of a text lie among the others', not together.
        order = rng.permutation(np.repeat(np.arange(len(items)), batch.counts))
        rows.append([(items[place], 1) for place in order.tolist()])
    told = {}
    for name in ("published", "newest", "frequent"):
        published = name == "published"
        queue = PublishedQueue(_ROOM, _CALL) if published else QuestionQueue(_ROOM, name)
        met = rows if published else batches
        found = simulate(queue, met, batches_a_call=batches_a_call, batch=_CALL, once=not published)
        told[name] = {
            "asked_by_distinct": found.asked / max(1, found.distinct),
            "steps_labelled_share": found.labelled_share,
        }
    return told


def _step_seconds(reward: Any) -> float:
    """How long a gradient step of the reward takes when nothing else is done; both sides wait meanwhile."""
    size, training = len(reward.labels), reward.config.training
    model, rows = reward.make_model(), []
    state = model.init(0)
    for number in range(_TIMED_STEPS + 1):
        chosen = list(draws(0, number, 1, size, training.batch_size, epochs=False))
        job = Job(number, chosen, reward.labels.first(size), np.arange(0))
        outcome = take_steps(model, state, job, training.batch_size)
        state = outcome.state
        rows.append(outcome.seconds)
    return float(np.median(rows[1:]))  # the first one compiles


def _client_seconds() -> float:
    """Processor time of the annotator's process so far."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "annotator_process" in " ".join(process.cmdline()):
                times = process.cpu_times()
                return float(times.user + times.system)
    return 0.0


def _labels(folder: Path) -> Iterator[Label]:
    return (record for record in read_log(folder / FILE) if isinstance(record, Label))


def _training(options: ConfigDict, seed: int, folder: Path, url: str | None) -> ConfigDict:
    """The config of a side, resolved: with the annotator at `url`, or with the table in `folder`."""
    config = resources.config("oni")
    config.seed = seed
    config.environment.name = options.env
    config.batch_size, config.rollout = options.batch_size, options.rollout
    config.actors.workers, config.actors.envs_per_worker = options.workers, options.envs_per_worker
    config.network.dtype = options.dtype
    config.devices.learner = config.devices.actor = "0"
    if url is None:
        config.reward.kind, config.reward.table = "table", str(folder / "table.json")
    else:
        config.reward.kind = options.kind
        config.annotator.kind, config.annotator.store_dir = "openai", str(folder / "store")
        config.annotator.openai.base_url, config.annotator.openai.model = url, "lexicon"
        config.annotator.answer.mode = "verdict"
    settings.configure_jax(config)
    return settings.check(config)


@contextlib.contextmanager
def _server(latency: float) -> Iterator[str]:
    """The served lexicon; gives its address."""
    command = [
        sys.executable, "-m", "motif_jax.launch", f"--config={resources.path('configs/serve_annotator.py')}",
        "--config.port=0", f"--config.latency_seconds={latency}",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            raise RuntimeError(f"the server of the lexicon did not start: {json.dumps(line)}")
        yield found.group()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_START_SECONDS)
