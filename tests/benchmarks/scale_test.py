"""The model of docs/scale.md: limits by hand, and how they move with the machine."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest

from motif_jax.benchmarks.scale import PAPER, Machine, Work, call_cost, measured, predict

GPU = Machine(hosts=1, cores=16, devices=1, engine_rate=40_000, device_rate=1e14, device_link=5e10)
WORK = Work(
    forward_flops=13.4e6,
    inference_share=0.05,
    learner_share=0.1,
    host_seconds=2e-6,
    step_bytes=656,
    parameters=2_800_000,
    envs_per_core=200,
    call_seconds=3e-4,
)


DOCUMENT = Path(__file__).parents[2] / "docs" / "scale.md"


def changed(thing: Any, **values: Any) -> Any:
    return dataclasses.replace(thing, **values)


def test_limits_by_hand() -> None:
    limits = predict(GPU, WORK).limits
    assert limits["actors"] == 15 * 40_000
    assert limits["host process"] == pytest.approx(500_000)
    assert limits["device links"] == pytest.approx(5e10 / 1312)
    inference, learner = 13.4e6 / 5e12, 3 * 13.4e6 * 33 / 32 / 1e13
    assert limits["devices"] == pytest.approx(1 / (inference + learner))


def test_the_environments_satisfy_their_equation() -> None:
    rate = predict(GPU, WORK).limits["environments"]
    update = 4096 * 3 * 13.4e6 * 33 / 32 / 1e13
    call = 3e-4 + 1_500 * 13.4e6 / 5e12
    wait = update / 2 * (rate * update / 4096)
    assert rate * (call + 100 / 40_000 + wait) == pytest.approx(15 * 200)


def test_the_smallest_limit_is_the_bound() -> None:
    for work, bound in [
        (WORK, "devices"),
        (changed(WORK, host_seconds=1e-4), "host process"),
        (changed(WORK, envs_per_core=2), "environments"),
        (changed(WORK, step_bytes=1e6), "device links"),
    ]:
        prediction = predict(GPU, work)
        assert prediction.bound == bound
        assert prediction.steps_per_second == min(prediction.limits.values()) == prediction.limits[bound]
    assert predict(changed(GPU, engine_rate=100), WORK).bound == "actors"


def test_hosts_scale_but_for_what_they_send_each_other() -> None:
    ten = changed(GPU, hosts=10)
    large = changed(WORK, batch_size=40_960)
    free = predict(ten, large)
    assert free.steps_per_second == pytest.approx(10 * predict(GPU, WORK).steps_per_second)
    slow = predict(changed(ten, network_link=1e9, network_latency=1e-5), large)
    seconds = 40_960 / free.limits["devices"] + 1.8 * 4 * 2_800_000 / 1e9 + 18 * 1e-5
    assert slow.limits["devices"] == pytest.approx(40_960 / seconds)
    same_batch = predict(changed(ten, network_link=1e9), changed(WORK, batch_size=4_096))
    assert same_batch.limits["devices"] < slow.limits["devices"], "a larger batch hides the reduction"


def test_on_a_cpu_times_add_up() -> None:
    machine = Machine(hosts=1, cores=2, devices=0, engine_rate=40_000, device_rate=1.0)
    work = Work(
        forward_flops=1.0, inference_share=6_000, learner_share=2_000 * 3 * 33 / 32, host_seconds=1e-4
    )
    prediction = predict(machine, work)
    seconds = 1 / 6_000 + 1 / 2_000 + (1 / 40_000 + 1e-4) / 2
    assert prediction.steps_per_second == pytest.approx(1 / seconds)
    assert prediction.bound.startswith("cores")
    assert prediction.limits["learner"] == pytest.approx(2_000)
    assert predict(changed(machine, hosts=3), work).steps_per_second == pytest.approx(3 / seconds)
    assert predict(machine, changed(work, host_seconds=0.0)).limits["host process"] == math.inf


def test_measured_parts_become_machine_and_work() -> None:
    names = ("inference/host_share", "inference/act_share", "batcher/assemble_share", "batcher/put_share")
    shares = dict.fromkeys(names, 0.1)
    train = {
        "value": 1_500.0,
        "learner_steps_per_second": 2_500.0,
        "inference_rows_per_second": 7_000.0,
        "inference_call_seconds": {"20": 0.003, "40": 0.0055},
        "metrics": {**shares, "batcher/lookup_share": 0.05},
        "settings": {"rollout": 32, "batch_size": 1024, "workers": 4, "envs_per_worker": 40},
        "machine": {"cores": 2, "devices": ["cpu"]},
    }
    machine, work = measured({"value": 40_000.0}, train)
    limits = predict(machine, work).limits
    assert limits["learner"] == pytest.approx(2_500)
    assert limits["inference"] == pytest.approx(7_000)
    assert limits["actors"] == pytest.approx(80_000)
    assert limits["host process"] == pytest.approx(1_500 / 0.4)
    on_gpu = {**train, "machine": {"cores": 16, "devices": 8 * ["NVIDIA H200"]}}
    machine, work = measured({"value": 40_000.0}, on_gpu)
    assert machine.devices == 1, "the one that is trained on"
    assert predict(machine, work).limits["actors"] == pytest.approx(4 * 40_000), "those that there are"
    assert work.call_seconds == pytest.approx(0.0005)
    assert 1 / work.inference_share == pytest.approx(0.000125)


def test_a_calls_own_time_is_what_its_rows_leave() -> None:
    assert call_cost({10: 0.4, 100: 1.3, 50: 9.0}) == pytest.approx((0.3, 0.01))
    assert call_cost({40: 0.8}) == pytest.approx((0.0, 0.02))
    assert call_cost({10: 0.5, 20: 1.2}) == pytest.approx((0.0, 0.07)), "less than nothing is noise"
    assert call_cost({10: 0.5, 20: 0.4}) == pytest.approx((0.3, 0.02)), (
        "so are rows that cost less than nothing"
    )


@pytest.mark.parametrize("name", PAPER)
def test_the_page_says_what_the_model_gives(name: str) -> None:
    row = re.search(
        rf"^\| {re.escape(name)} \| ([\d,.]+)( million)? \| ([^|]+) \|", DOCUMENT.read_text(), re.MULTILINE
    )
    assert row is not None
    prediction = predict(*PAPER[name])
    written = float(row.group(1).replace(",", "")) * (1e6 if row.group(2) else 1)
    assert prediction.steps_per_second == pytest.approx(written, rel=0.02)
    assert prediction.bound == row.group(3)
