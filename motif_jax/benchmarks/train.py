"""Measures the whole system: actors, inference, batcher and learner at once.

    python -m motif_jax.launch --config=configs/benchmark.py:train \\
        --config.options.reward_dir=runs/reward
    python -m motif_jax.launch --config=configs/benchmark.py:train \\
        --config.options.network=laptop --config.options.beside=quickstart

Value: environment steps a second. Baseline: 1 / (1 / learner + 1 / inference), the rate if both
took turns on the device, with inference at the training's mean rows a call; measured after all
repeats, when no actors run. Further fields: waits of every part, policy lag, bytes moved, model
FLOP/s as a share of the matrix-product rate, memory; `launch_share`, the part of inference's host
share in which its program is launched; and `threads`: the share of the last repeat that each thread
was on a core, queued for one, or waiting (for the interpreter's lock, a pipe, the device).

With `beside`, a variant of train_agent, the system runs with that network and its own in turns, a
new system each time. It takes about two minutes on CPU. On a GPU: `configs/benchmark.py:train_gpu`.
"""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import psutil
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, compare, inference, print_early, result
from motif_jax.core.devices.meters import system_metrics
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.batcher import Batch
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.learner import Averages
from motif_jax.rl.system import System

GPU_SIZE = _agents.GPU_SIZE


def options() -> ConfigDict:
    """Options of the training, and `seconds` of each repeat (`warmup_seconds` before the first)."""
    return _agents.training_options(beside="", seconds=10.0, warmup_seconds=5.0)


def run(config: ConfigDict) -> dict[str, Any]:
    options = config.options
    training = _agents.training_config(options, config.seed)
    system = System(training)

    # The value: the system as in a training.
    rates = []
    metrics = []
    launch_shares = []
    threads: dict[str, dict[str, float]] = {}
    with BatchStream(system) as stream:
        batch = _play(system, stream, options.warmup_seconds)[1]
        memory = _memory()
        for _ in range(config.repeats):
            system.meters.read()
            # The reading above forgets what was counted before this repeat.
            averages = Averages()
            before = thread_times()
            rates.append(_play(system, stream, options.seconds, averages)[0])
            threads = thread_shares(before)
            reading = system.meters.read()
            launch_shares.append(reading.rate("inference/launch") / system.inference_threads)
            metrics.append({**system_metrics(reading, system.inference_threads), **averages.read()})
        memory = max(memory, _memory())
    assert batch is not None
    combined = combine(metrics)
    print_early(
        config, "steps/s", rates, launch_share=float(np.mean(launch_shares)), metrics=combined
    )

    # The baseline: learner and inference by turns on the device.
    rows = max(1, round(combined["inference/rows_per_call"]))
    call = inference.call_of(system, rows)
    learner_rates = []
    inference_rates = []
    baseline = []
    peaks = []
    for _ in range(config.repeats):
        updates = _agents.calls_per_second(lambda: _agents.update(system, batch), 2.0)
        learner_rate = options.batch_size * updates
        inference_rate = rows * _agents.calls_per_second(call, 1.0)
        learner_rates.append(learner_rate)
        inference_rates.append(inference_rate)
        baseline.append(1.0 / (1.0 / learner_rate + 1.0 / inference_rate))
        peaks.append(_agents.matrix_product_rate(options.dtype))

    forward_flops, update_flops = _agents.network_flops(training)
    # An update has a row more than a rollout has steps: that which bootstraps.
    flops_per_step = forward_flops + update_flops * (options.rollout + 1) / options.rollout
    # Last: each side starts actors, beside which nothing else could be measured.
    more = _compare_networks(training, config) if options.beside else {}
    return result(
        config,
        "steps/s",
        rates,
        "learner alone and inference alone, in turns on the device",
        baseline,
        learner_steps_per_second=float(np.median(learner_rates)),
        inference_rows_per_second=float(np.median(inference_rates)),
        matrix_product_share=float(np.median(rates)) * flops_per_step / float(np.median(peaks)),
        memory_megabytes=memory / 1e6,
        launch_share=float(np.mean(launch_shares)),
        threads=threads,
        metrics=combined,
        **more,
    )


def _compare_networks(training: AgentConfig, config: ConfigDict) -> dict[str, Any]:
    """Rates with the training's network and that of the variant `beside` in turns, a new system
    each time.
    """
    options = config.options
    other_options = ConfigDict({**options.to_dict(), "network": options.beside})
    other_training = _agents.training_config(other_options, config.seed)
    rates = []
    other_rates = []
    for _ in range(config.repeats):
        rates.append(_rate_of_new_system(training, options))
        other_rates.append(_rate_of_new_system(other_training, options))
    return {
        "in_turns": statistics.median(rates),
        "beside": {"what": f"the network of {options.beside}", **compare(rates, other_rates)},
    }


def _rate_of_new_system(training: AgentConfig, options: ConfigDict) -> float:
    system = System(training)
    with BatchStream(system) as stream:
        _play(system, stream, options.warmup_seconds)
        return _play(system, stream, options.seconds)[0]


def combine(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics over all repeats: extremes of those whose name ends with min or max, means of the
    others.
    """
    combined = {}
    for name in sorted({name for row in metrics for name in row}):
        values = [row[name] for row in metrics if name in row]
        last_word = re.split("[/_]", name)[-1]
        reduce = {"max": np.max, "min": np.min}.get(last_word, np.mean)
        combined[name] = float(reduce(values))
    return combined


def _play(
    system: System, stream: BatchStream, seconds: float, averages: Averages | None = None
) -> tuple[float, Batch | None]:
    """Trains for `seconds`, and at least one update; returns environment steps a second, and the
    newest batch.
    """
    steps = 0
    newest = None
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or newest is None:
        batch = stream.get()
        if batch is None:
            continue
        system.learner.step(batch)
        steps += batch.num_steps
        newest = batch
        if averages is not None:
            averages.add(system.learner.metrics())
    # The newest update ends within the time that is measured.
    system.learner.finish_update()
    return steps / (time.perf_counter() - start), newest


def _memory() -> int:
    """Bytes of this process and its children (proportional set size)."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(process.memory_full_info().pss for process in processes)


class ThreadTimes(NamedTuple):
    """Seconds of a thread: on a core, in the queue for a core, and waiting for anything else; NaN
    where the system does not tell.
    """

    clock: float  # that have passed
    processor: float  # on a core
    queued: float  # ready to run, while other threads had the cores

    @classmethod
    def now(cls, thread: int) -> Self:
        """The times so far of the thread of this process with this `native_id`."""
        clock = time.perf_counter()
        try:
            text = Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii")
        except OSError:  # not Linux, or the thread has ended
            return cls(clock, float("nan"), float("nan"))
        processor, queued, _ = text.split()
        return cls(clock, 1e-9 * int(processor), 1e-9 * int(queued))

    def since(self, before: ThreadTimes) -> ThreadTimes:
        return ThreadTimes(
            clock=self.clock - before.clock,
            processor=self.processor - before.processor,
            queued=self.queued - before.queued,
        )

    @property
    def waiting(self) -> float:
        """Seconds in which the thread waited for a lock, a pipe or the device."""
        return self.clock - self.processor - self.queued


def thread_times() -> dict[str, ThreadTimes]:
    """The times so far of this process's Python threads, by name."""
    numbers = {thread.name: thread.native_id for thread in threading.enumerate()}
    return {name: ThreadTimes.now(number) for name, number in numbers.items() if number is not None}


def thread_shares(before: dict[str, ThreadTimes]) -> dict[str, dict[str, float]]:
    """Shares of the time since `before`, the output of `thread_times`, by thread."""
    now = thread_times()
    shares_of = {}
    for name, times_before in before.items():
        if name not in now:
            continue  # the thread has ended
        times = now[name].since(times_before)
        shares_of[name] = {
            "processor": times.processor / times.clock,
            "queued": times.queued / times.clock,
            "waiting": times.waiting / times.clock,
        }
    return shares_of
