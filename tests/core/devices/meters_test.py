from __future__ import annotations

import pytest

from motif_jax.core.devices.meters import Meters, of_all_hosts, system_metrics


def test_shares_of_inference_are_of_all_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    meters = Meters()
    assert meters.read().rate("nothing passed") == 0.0
    for thread in (1, 3):
        for number, part in enumerate(
            ("wait", "device", "host", "act", "rows", "bytes", "padding"), 2
        ):
            meters.add(f"inference/{part}", number * thread / 4)
    for number, part in enumerate(("wait", "blocked", "assemble", "lookup", "put"), 2):
        meters.add(f"batcher/{part}", number)
    for number, part in enumerate(("wait", "update", "updates", "late", "bytes"), 3):
        meters.add(f"learner/{part}", number)
        meters.add(f"learner/{part}", number + 3)
    clock[0] = 110.0
    shown = system_metrics(meters.read(), inference_threads=2)
    batching = {"wait": 0.2, "blocked": 0.3, "assemble": 0.4, "lookup": 0.5, "put": 0.6}
    assert shown == pytest.approx(
        {
            "inference/wait_share": 0.1,
            "inference/device_share": 0.15,
            "inference/host_share": 0.2,
            "inference/act_share": 0.25,
            "throughput/updates_per_second": 1.3,
            "throughput/megabytes_per_second": 1.7e-6,
            "throughput/inference_megabytes_per_second": 0.7e-6,
            "learner/wait_share": 0.9,
            "learner/update_share": 1.1,
            "learner/update_seconds": 5.5,
            "learner/late_share": 7.5,
            "inference/rows_per_second": 0.6,
            "inference/rows_per_call": 3.0,
            "inference/padding_per_call": 4.0,
            "inference/device_milliseconds": 1500.0,
            "inference/device_milliseconds_max": 2250.0,
            **{f"batcher/{part}_share": share for part, share in batching.items()},
        }
    )
    assert meters.read().maxima == {}


def test_a_wait_over_a_reading_is_split_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    meters = Meters()
    with meters.time("batcher/wait"):
        clock[0] = 108.0
        assert system_metrics(meters.read())["batcher/wait_share"] == 1.0
        clock[0] = 109.0
    clock[0] = 110.0
    assert [system_metrics(meters.read())["batcher/wait_share"] for _ in range(2)] == [0.5, 0.0]


def test_rates_of_hosts_are_summed_and_shares_averaged() -> None:
    names = "throughput/updates_per_second throughput/megabytes_per_second inference/rows_per_second learner/wait_share"
    names += " throughput/inference_megabytes_per_second inference/rows_per_call inference/device_milliseconds_max"
    one = dict(zip(names.split(), (2.0, 10.0, 100.0, 0.2, 3.0, 8.0, 5.0)))
    other = dict(zip(one, (2.0, 20.0, 200.0, 0.4, 6.0, 16.0, 10.0)))
    both = dict(zip(one, (2.0, 30.0, 300.0, 0.3, 9.0, 12.0, 10.0)))
    assert of_all_hosts([one, other]) == pytest.approx(both)
    assert of_all_hosts([one]) == one
    assert set(system_metrics(Meters().read())) >= set(one), "names as they are written"
