"""What a call of inference costs the host is measured on any machine."""

from __future__ import annotations

import pytest

from motif_jax.benchmarks import inference_host
from motif_jax.core.errors import UserError
from tests.reward_fixtures import load_config


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_the_host_work_of_both_sizes_is_told() -> None:
    line = inference_host.run(load_config("benchmark", "inference_host", {"repeats": 2, "options.calls": 3}))
    assert line["rows"] == 560
    assert line["host_microseconds"].keys() == {"330", "560"}
    assert line["host_microseconds"]["560"] == line["value"]
    # The copy is a part of the call.
    assert 0 < line["baseline"]["value"] < line["value"]


def test_groups_wait_in_turns_and_pass_row_zero() -> None:
    call = inference_host._Call(load_config("benchmark", "inference_host"), groups=11, envs=2)
    calls = [call._groups.ready(0.0) for _ in range(30)]
    assert all(len({each.group for each in ready}) == 11 for ready in calls)
    played = [each for ready in calls for each in ready]
    assert {each.group for each in played} == set(range(30))
    starts = [any(each.row == 0 for each in ready) for ready in calls]
    assert 0 < sum(starts) < len(starts)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_a_call_beside_a_batcher_is_divided_into_its_parts() -> None:
    overrides = {"repeats": 1, "options.calls": 30, "options.beside": "batcher"}
    line = inference_host.run(load_config("benchmark", "inference_host", overrides))
    assert line["alone"].keys() == line["beside"].keys() == {"processor", "queued", "waiting"}
    assert line["beside"]["processor"] > 0
    # 30 calls of 560 rows are four batches.
    assert line["batcher_microseconds_per_row"] > 0


def test_calls_run_beside_a_batcher_or_nothing() -> None:
    config = load_config("benchmark", "inference_host", {"options.beside": "learner"})
    with pytest.raises(UserError, match=r"options\.beside=learner"):
        inference_host.run(config)
