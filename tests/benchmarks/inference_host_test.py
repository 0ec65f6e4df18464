"""What a call of inference costs the host is measured on any machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from motif_jax.benchmarks import inference_host
from motif_jax.benchmarks.inference_host import WaitingGroups
from motif_jax.core.errors import UserError
from motif_jax.rl.actors.rollouts import ActorsConfig
from tests.reward_fixtures import load_config


@pytest.mark.slow
def test_the_line_has_the_host_work_of_both_sizes() -> None:
    line = inference_host.run(
        load_config("benchmark", "inference_host", {"repeats": 2, "options.calls": 3})
    )
    assert line["rows"] == 560
    assert line["host_microseconds"].keys() == {"330", "560"}
    assert line["host_microseconds"]["560"] == line["value"]
    # The copy is a part of the call.
    assert 0 < line["baseline"]["value"] < line["value"]


ROLLOUT = 4


@pytest.fixture
def groups() -> Iterator[WaitingGroups]:
    """Five groups, of which two wait at a time."""
    config = ActorsConfig(
        env="Recall-v0",
        options={},
        seed=0,
        workers=5,
        envs_per_group=1,
        rollout=ROLLOUT,
        groups_per_worker=1,
    )
    waiting_groups = WaitingGroups(config, 2)
    yield waiting_groups
    waiting_groups.close()


def test_groups_wait_in_turns(groups: WaitingGroups) -> None:
    turns = [[ready.group for ready in groups.ready(0.0)] for _ in range(5)]

    assert turns == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


def test_a_group_reaches_every_row_of_its_slot_in_order(groups: WaitingGroups) -> None:
    rows: list[list[int]] = [[] for _ in range(5)]
    for _ in range(5 * ROLLOUT // 2):
        for ready in groups.ready(0.0):
            rows[ready.group].append(ready.row)

    # Group 1 begins at row 1, so that not all groups begin a slot in the same call.
    assert rows == [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.slow
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
