"""The line of what runs where."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from motif_jax.rl.training import overview
from tests.play.agent_runs import recall_training
from tests.recorded_outputs import assert_matches_packed_recording


def gpus(*numbers: int) -> list[Any]:
    return [SimpleNamespace(platform="gpu", id=number, device_kind="NVIDIA H200") for number in numbers]


CPU: Any = SimpleNamespace(platform="cpu", id=0, device_kind="cpu")
MINE = {"reward__kind": "my:Reward", "reward__intrinsic_coefficient": 1.0}


def test_the_line_of_a_run(record: bool) -> None:
    lines = []
    for learning, acting, changes in (
        (gpus(0, 1), gpus(0, 1), {}),
        (gpus(0, 1), gpus(0), {}),
        ([CPU], [CPU], {"reward__extrinsic_coefficient": 0.0}),
        ([CPU], [CPU], {"reward__dir": "a"}),
        ([CPU], [CPU], MINE),
    ):
        lines.append(overview(recall_training(**changes), 2_818_304, learning, acting, ["node1"]))
    for size, nodes in ((999_999, ["a"]), (1_000_000, ["a", "b", "a"])):
        config = recall_training(actors__workers=1)
        lines.append(overview(config, size, [CPU], [CPU], nodes, "by rules"))
    assert_matches_packed_recording("overview", {"lines": "\n".join(lines)}, record)
