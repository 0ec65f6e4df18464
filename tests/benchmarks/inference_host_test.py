"""What a call of inference costs the host is measured on any machine."""

from __future__ import annotations

import pytest

from motif_jax.benchmarks import inference_host
from motif_jax.core.errors import UserError
from tests.reward_fixtures import load_config


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_the_line_has_the_host_work_of_both_sizes() -> None:
    line = inference_host.run(load_config("benchmark", "inference_host", {"repeats": 2, "options.calls": 3}))
    assert line["rows"] == 560
    assert line["host_microseconds"].keys() == {"330", "560"}
    assert line["host_microseconds"]["560"] == line["value"]
    # The copy is a part of the call.
    assert 0 < line["baseline"]["value"] < line["value"]


def test_groups_wait_in_turns_and_pass_row_zero() -> None:
    call = inference_host._Call(load_config("benchmark", "inference_host"), groups=11, envs=2)
    calls = [call._groups.ready(0.0) for _ in range(30)]
    assert all(len({entry.group for entry in ready}) == 11 for ready in calls)
    assert {entry.group for ready in calls for entry in ready} == set(range(30))
    with_row_zero = [ready for ready in calls if any(entry.row == 0 for entry in ready)]
    assert 0 < len(with_row_zero) < len(calls)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_a_call_beside_a_batcher_is_divided_into_its_parts() -> None:
    overrides = {"repeats": 1, "options.calls": 30, "options.beside": "batcher"}
    line = inference_host.run(load_config("benchmark", "inference_host", overrides))
    assert line["alone"].keys() == line["beside"].keys() == {"processor", "queued", "waiting"}
    assert line["beside"]["processor"] > 0
    # 30 calls of 560 rows are four batches.
    assert line["batcher_microseconds_per_row"] > 0


def test_another_name_than_batcher_is_refused() -> None:
    config = load_config("benchmark", "inference_host", {"options.beside": "learner"})
    with pytest.raises(UserError, match=r"options\.beside=learner"):
        inference_host.run(config)
