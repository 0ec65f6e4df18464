"""The line of what runs where."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from motif_jax.rl.training import overview
from tests.rollouts.agent_runs import recall_config


def gpus(*numbers: int) -> list[Any]:
    return [SimpleNamespace(platform="gpu", id=number, device_kind="NVIDIA H200") for number in numbers]


CPU: Any = SimpleNamespace(platform="cpu", id=0, device_kind="cpu")
ONE = ["node1"]


@pytest.mark.parametrize(
    ("learning", "acting", "expected"),
    [
        (gpus(0, 1), gpus(0, 1), "learn on gpu:0,1 (2 x NVIDIA H200), which also act;"),
        (gpus(0, 1), gpus(0), "learn on gpu:0,1 (2 x NVIDIA H200); gpu:0 (NVIDIA H200) acts;"),
        ([CPU], [CPU], "learn on cpu:0 (no GPU), which also acts;"),
    ],
)
def test_devices_are_named_with_their_kind(learning: list[Any], acting: list[Any], expected: str) -> None:
    line = overview(recall_config(), 2_818_304, learning, acting, ONE)
    assert line.startswith(f"2 actors x 6 environments of Recall-v0; 2.8 million parameters {expected}")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"reward__extrinsic_coefficient": 0.0}, "no reward: both coefficients are 0"),
        ({"reward__dir": "a"}, "the task's reward alone (the intrinsic reward of a is only logged)"),
        (
            {"reward__kind": "my:Reward", "reward__intrinsic_coefficient": 1.0},
            "intrinsic reward of kind my:Reward",
        ),
    ],
)
def test_the_reward_is_what_is_learned_from(given: dict[str, Any], expected: str) -> None:
    assert overview(recall_config(**given), 1, [CPU], [CPU], ONE).endswith(f"; {expected}")
