"""The short form of launch/chaos.sh: every stage, killed twice at random moments."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.force import chaos
from tests.force.scenarios import OF_TORCH, SCENARIOS, Inputs

NAMES = [
    pytest.param(name, marks=pytest.mark.torch) if name in OF_TORCH else name for name in SCENARIOS
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return Inputs(tmp_path_factory.mktemp("chaos") / "inputs")


@pytest.mark.extra
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_a_killed_stage_ends_as_undisturbed_and_leaves_nothing(
    name: str, tmp_path: Path, inputs: Inputs
) -> None:
    rng = random.Random(32)
    for _ in range(20):
        line = chaos.attack(name, tmp_path, inputs, rng, kills=2)
        assert line["problem"] is None
        assert line["equal"]
        assert not line["left"]
        if line["hits"][0]["hit"]:
            return
        # This process was held up so long that the program had ended by itself.
    pytest.fail("it is never killed")
