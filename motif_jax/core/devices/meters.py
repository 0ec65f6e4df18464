"""Busy and waiting times of threads, read and reset with each row of metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

# Rates that are summed over hosts (all hosts make the same updates).
_SUMMED = (
    "throughput/megabytes_per_second",
    "throughput/inference_megabytes_per_second",
    "inference/rows_per_second",
)
_LARGEST = "inference/device_milliseconds_max"


class Meters:
    """Named sums; thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._largest: dict[str, float] = {}
        # Running blocks: the name of the sum, and the time up to which it is added.
        self._running: dict[object, tuple[str, float]] = {}
        self._since = time.perf_counter()

    def add(self, name: str, value: float) -> None:
        """Adds `value` to the sum `name`."""
        with self._lock:
            self._add(name, value)

    def add_all(self, values: Mapping[str, float]) -> None:
        """As `add` for each of `values`, in one step: a `read` gets all of them or none."""
        with self._lock:
            for name, value in values.items():
                self._add(name, value)

    def _add(self, name: str, value: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + value
        self._counts[name] = self._counts.get(name, 0) + 1
        self._largest[name] = max(self._largest.get(name, value), value)

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Adds the block's seconds; a `read` meanwhile gets those so far."""
        block = object()  # several threads may time blocks of the same name
        with self._lock:
            self._running[block] = (name, time.perf_counter())
        try:
            yield
        finally:
            with self._lock:
                _, start = self._running.pop(block)
                self._add(name, time.perf_counter() - start)

    def read(self) -> Reading:
        """Returns the sums since the last `read`, and resets them."""
        with self._lock:
            now = time.perf_counter()
            # A block that still runs gives its time so far, and begins anew for the next reading.
            # Else a wait of minutes would stand in one row.
            for block, (name, start) in self._running.items():
                self._add(name, now - start)
                self._running[block] = (name, now)
            reading = Reading(self._sums, self._counts, self._largest, now - self._since)
            self._sums = {}
            self._counts = {}
            self._largest = {}
            self._since = now
        return reading


class Reading(NamedTuple):
    """The sums, numbers and maxima of what was added to meters during `seconds`."""

    sums: dict[str, float]
    counts: dict[str, int]
    maxima: dict[str, float]
    seconds: float

    def mean(self, name: str) -> float:
        """Mean of the added values, 0 without any."""
        return self.sums[name] / self.counts[name] if name in self.counts else 0.0

    def rate(self, name: str) -> float:
        """Sum per second; of times, the share of a thread's time."""
        return self.sums.get(name, 0.0) / self.seconds if self.seconds > 0 else 0.0


def system_metrics(reading: Reading, inference_threads: int = 1) -> dict[str, float]:
    """Throughput and shares of time of one process; the shares of inference are means over its
    threads.
    """
    inference_phases = ("wait", "device", "host", "act")
    batcher_phases = ("wait", "blocked", "assemble", "lookup", "put")
    return {
        **{
            f"inference/{phase}_share": reading.rate(f"inference/{phase}") / inference_threads
            for phase in inference_phases
        },
        "throughput/updates_per_second": reading.rate("learner/updates"),
        "throughput/megabytes_per_second": reading.rate("learner/bytes") / 1e6,
        "throughput/inference_megabytes_per_second": reading.rate("inference/bytes") / 1e6,
        "learner/wait_share": reading.rate("learner/wait"),
        "learner/update_share": reading.rate("learner/update"),
        "learner/update_seconds": reading.mean("learner/update"),
        "learner/late_share": reading.mean("learner/late"),
        "inference/rows_per_second": reading.rate("inference/rows"),
        "inference/rows_per_call": reading.mean("inference/rows"),
        "inference/padding_per_call": reading.mean("inference/padding"),
        "inference/device_milliseconds": 1e3 * reading.mean("inference/device"),
        "inference/device_milliseconds_max": 1e3 * reading.maxima.get("inference/device", 0.0),
        **{f"batcher/{phase}_share": reading.rate(f"batcher/{phase}") for phase in batcher_phases},
    }


def of_all_hosts(hosts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Joins the `system_metrics` of all hosts: sums of rates, the largest of maxima, means of the
    others.
    """
    combined: dict[str, float] = {}
    for name in hosts[0]:
        values = [host[name] for host in hosts]
        if name == _LARGEST:
            combined[name] = max(values)
        elif name in _SUMMED:
            combined[name] = sum(values)
        else:
            combined[name] = sum(values) / len(values)
    return combined
