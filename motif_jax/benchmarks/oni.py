"""Learning a reward while playing: what its annotation costs the training.

    python -m motif_jax.launch --config=configs/benchmark.py:oni

Value: environment steps a second of a training with kind retrieval, whose questions are answered by the served lexicon
(a process of its own, `latency` seconds a question). Yardstick, in turns with it: the same training with the same labels in a
table (kind table), without an annotator. Both begin when `labels` are known. Besides: questions asked by distinct
messages met, batches from a message's first to the first that was paid with its label, share of steps labelled, time that the
batcher lost, memory. Some minutes on 2 cores.
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
from typing import Any

import numpy as np
import psutil
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, result
from motif_jax.benchmarks.train import _play
from motif_jax.online import settings
from motif_jax.online.system import BatchStream, System
from motif_jax.rewards.label_log import FILE, Label, read_log
from motif_jax.support import resources
from motif_jax.support.files import atomic_write_json

_START_SECONDS = 120.0


def options() -> ConfigDict:
    """Settings: those of the training; `latency` of the server, `labels` before the first repeat, `seconds` of each side."""
    made = _agents.training_options()
    del made.reward_dir
    return ConfigDict({**made.to_dict(), "latency": 0.2, "labels": 1000, "seconds": 10.0})


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line."""
    options = config.options
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oni-")))
        url = stack.enter_context(_server(options.latency))
        online = System(_training(options, config.seed, folder, url), workdir=folder)
        stream = stack.enter_context(BatchStream(online))
        assert online.reward is not None
        begin = time.perf_counter()
        while sum(1 for _ in _labels(folder)) < options.labels:
            _play(online, stream, 1.0)
        filled = time.perf_counter() - begin
        table = {label.items[0]: label.label for label in _labels(folder)}
        atomic_write_json(folder / "table.json", table)
        frozen = System(_training(options, config.seed, folder, None), workdir=folder)
        other = stack.enter_context(BatchStream(frozen))
        _play(frozen, other, 1.0)
        online.reward.metrics()
        rates, baseline, rows = [], [], []
        for _ in range(config.repeats):
            baseline.append(_play(frozen, other, options.seconds)[0])
            online.reward.metrics()  # what waited while the other side had its turn is not counted
            rates.append(_play(online, stream, options.seconds)[0])
            rows.append(online.reward.metrics())
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
        "the same labels from a table, without an annotator",
        baseline,
        options.to_dict(),
        labels=last["reward/labels"],
        questions_by_texts_met=last["annotator/questions"] / last["reward/texts_met"],
        steps_labelled_share=median("reward/steps_labelled_share"),
        batches_to_first_use=median("reward/batches_to_first_use"),
        lost_share=median("reward/lost_share"),
        seconds_to_labels=filled,
        annotator_megabytes=last.get("annotator/megabytes", 0.0),
        processes_megabytes=memory,
    )


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
