"""The line of what runs where."""

from __future__ import annotations

from typing import Any

import pytest

from motif_jax.rl.training import overview
from tests.made_up_devices import MadeUpDevice
from tests.play.agent_runs import recall_training


def gpus(*numbers: int) -> list[Any]:
    return [MadeUpDevice("NVIDIA H200", "gpu", number) for number in numbers]


CPU: Any = MadeUpDevice("cpu", "cpu", 0)
MINE = {"reward__kind": "my:Reward", "reward__intrinsic_coefficient": 1.0}


def overview_of(
    learning: Any = (CPU,), acting: Any = (CPU,), size: int = 2_818_304, **changes: Any
) -> list[str]:
    """The parts of the line: actors, learner and what acts, reward."""
    return overview(recall_training(**changes), size, learning, acting, ["node1"]).split("; ")


@pytest.mark.parametrize(
    ("learning", "acting", "places"),
    [
        (gpus(0, 1), gpus(0, 1), ["gpu:0,1 (2 x NVIDIA H200), which also act"]),
        (gpus(0, 1), gpus(0), ["gpu:0,1 (2 x NVIDIA H200)", "gpu:0 (NVIDIA H200) acts"]),
        ([CPU], [CPU], ["cpu:0 (no GPU), which also acts"]),
    ],
)
def test_the_overview_says_which_devices_learn_and_act(
    learning: Any, acting: Any, places: list[str]
) -> None:
    actors, *middle, _ = overview_of(learning, acting)

    assert actors == "2 actors x 6 environments of Recall-v0"
    assert middle == [f"2.8 million parameters learn on {places[0]}", *places[1:]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "the task's reward alone"),
        ({"reward__extrinsic_coefficient": 0.0}, "no reward: both coefficients are 0"),
        (
            {"reward__dir": "a"},
            "the task's reward alone (the intrinsic reward of a is only logged)",
        ),
        (MINE, "intrinsic reward of kind my:Reward"),
        (
            MINE | {"reward__intrinsic_coefficient": 0.0},
            "the task's reward alone (the intrinsic reward of kind my:Reward is only logged)",
        ),
        (
            {"reward__kind": "retrieval", "reward__intrinsic_coefficient": 0.0},
            "the task's reward alone (the intrinsic reward of kind retrieval is only logged, and its annotator is asked all the same: "
            "config.reward.kind=none asks nothing)",
        ),
    ],
)
def test_the_overview_says_what_is_rewarded(changes: dict[str, Any], words: str) -> None:
    assert overview_of(**changes)[-1] == words


@pytest.mark.parametrize(
    ("size", "words"), [(999_999, "999,999 parameters"), (1_000_000, "1.0 million parameters")]
)
def test_the_overview_writes_millions_of_parameters_short(size: int, words: str) -> None:
    assert overview_of(size=size)[1].startswith(f"{words} learn on ")


def test_the_overview_counts_hosts_of_the_same_name() -> None:
    config = recall_training(actors__workers=1)

    line = overview(config, 1_000_000, [CPU], [CPU], ["a", "b", "a"], "by rules")

    hosts = "3 hosts (2 x a, b), each with 1 actor x 6 environments of Recall-v0 (by rules)"
    assert line.split("; ")[0] == hosts
