"""What meters show: shares of threads' time, and what several hosts show together."""

from __future__ import annotations

import pytest

from motif_jax.devices.meters import Meters, of_all_hosts, system_metrics


def test_shares_of_inference_are_of_all_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    meters, parts = Meters(), ("wait", "device", "host", "act")
    for _ in range(2):  # threads, each busy all the time
        for part in parts:
            meters.add(f"inference/{part}", 2.5)
        meters.add("inference/rows", 30)
        meters.add("inference/bytes", 10e6)
    meters.add("learner/bytes", 30e6)
    meters.add("batcher/wait", 10.0)
    clock[0] = 110.0
    shown = system_metrics(meters.read(), inference_threads=2)
    assert [shown[f"inference/{part}_share"] for part in parts] == [0.25] * 4
    assert shown["batcher/wait_share"] == 1.0
    assert (shown["inference/rows_per_second"], shown["inference/rows_per_call"]) == (6.0, 30.0)
    megabytes = ("throughput/megabytes_per_second", "throughput/inference_megabytes_per_second")
    assert [shown[name] for name in megabytes] == [3.0, 2.0]


def test_a_wait_over_a_reading_is_split_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a row soon after another would show a share above one."""
    clock = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    meters = Meters()
    with meters.time("batcher/wait"):
        clock[0] = 108.0
        assert system_metrics(meters.read())["batcher/wait_share"] == 1.0
        clock[0] = 109.0
    clock[0] = 110.0
    assert system_metrics(meters.read())["batcher/wait_share"] == 0.5
    assert system_metrics(meters.read())["batcher/wait_share"] == 0.0


def test_rates_of_hosts_are_summed_and_shares_averaged() -> None:
    # Of one host, of another, and of both.
    given = {
        "throughput/updates_per_second": (2.0, 2.0, 2.0),
        "throughput/megabytes_per_second": (10.0, 20.0, 30.0),
        "throughput/inference_megabytes_per_second": (3.0, 6.0, 9.0),
        "inference/rows_per_second": (100.0, 200.0, 300.0),
        "inference/rows_per_call": (8.0, 16.0, 12.0),
        "inference/device_milliseconds_max": (5.0, 10.0, 10.0),
        "learner/wait_share": (0.2, 0.4, 0.3),
    }
    one, other, both = ({name: values[n] for name, values in given.items()} for n in range(3))
    assert of_all_hosts([one, other]) == pytest.approx(both)
    assert of_all_hosts([one]) == one
    assert set(system_metrics(Meters().read())) >= set(one), "names as they are written"
