"""The line of what runs where."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from motif_jax.rl.training import overview
from tests.rollouts.agent_runs import recall_training


def gpus(*numbers: int) -> list[Any]:
    return [SimpleNamespace(platform="gpu", id=number, device_kind="NVIDIA H200") for number in numbers]


CPU: Any = SimpleNamespace(platform="cpu", id=0, device_kind="cpu")
ON_CPU = "learn on cpu:0 (no GPU), which also acts"
TASK = "the task's reward alone"
LOGGED = f"{TASK} (the intrinsic reward of a is only logged)"
MINE = {"reward__kind": "my:Reward", "reward__intrinsic_coefficient": 1.0}


@pytest.mark.parametrize(
    ("learning", "acting", "changes", "where", "reward"),
    [
        (gpus(0, 1), gpus(0, 1), {}, "learn on gpu:0,1 (2 x NVIDIA H200), which also act", TASK),
        (gpus(0, 1), gpus(0), {}, "learn on gpu:0,1 (2 x NVIDIA H200); gpu:0 (NVIDIA H200) acts", TASK),
        ([CPU], [CPU], {"reward__extrinsic_coefficient": 0.0}, ON_CPU, "no reward: both coefficients are 0"),
        ([CPU], [CPU], {"reward__dir": "a"}, ON_CPU, LOGGED),
        ([CPU], [CPU], MINE, ON_CPU, "intrinsic reward of kind my:Reward"),
    ],
)
def test_the_line_names_devices_with_their_kind_and_the_reward_that_is_learned_from(
    learning: list[Any], acting: list[Any], changes: dict[str, Any], where: str, reward: str
) -> None:
    line = overview(recall_training(**changes), 2_818_304, learning, acting, ["node1"])
    assert line == f"2 actors x 6 environments of Recall-v0; 2.8 million parameters {where}; {reward}"


def test_the_line_names_all_hosts_and_small_networks_exactly() -> None:
    def line(size: int, *nodes: str) -> str:
        return overview(recall_training(actors__workers=1), size, [CPU], [CPU], nodes, "by rules")

    one = "1 actor x 6 environments of Recall-v0 (by rules)"
    rest = f"parameters {ON_CPU}; {TASK}"
    assert line(999_999, "a") == f"{one}; 999,999 {rest}"
    several = line(1_000_000, "a", "b", "a")
    assert several == f"3 hosts (2 x a, b), each with {one}; 1.0 million {rest}"
