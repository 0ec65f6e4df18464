"""Arguments and wrappers of a gymnasium environment: `config.environment.kwargs` and `wrappers`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.spec import RUNNING, TERMINATED
from tests.envs.playing import started
from tests.processes import REPOSITORY

LAKE = "gym:FrozenLake-v1"
FIRM = '{"is_slippery": false}'
VAULT = {"name": "gym:ToyVault-v0", "modules": "tests.gym_toys"}
TOYS = "tests.gym_toys"
# Of FrozenLake.
DOWN = 1
RIGHT = 2


def options_of(name: str = LAKE, **section: object) -> dict[str, object]:
    return registry.options_of({"name": name, **section})


def test_an_environment_gets_its_arguments() -> None:
    environment, out = started(LAKE, 0, **options_of(kwargs=FIRM))

    steps = [environment.step(action, out) for action in (DOWN, DOWN, RIGHT, RIGHT, DOWN, RIGHT)]

    assert steps == [(0.0, RUNNING)] * 5 + [(1.0, TERMINATED)], "no step on the ice slips"


def test_arguments_decide_on_the_observation() -> None:
    spec = registry.spec(LAKE, **options_of(kwargs='{"map_name": "8x8"}'))

    assert spec.observation["observation"].shape == (64,)


@pytest.mark.parametrize("kwargs", ["{}", "", None])
def test_an_environment_without_arguments_has_no_such_option(kwargs: str | None) -> None:
    assert options_of(kwargs=kwargs, wrappers="") == {}


def test_values_of_a_section_take_the_place_of_an_agents() -> None:
    trained = {"max_episode_steps": 9, "kwargs": {"is_slippery": False}, "wrappers": "a:b"}

    same = registry.replace_options(trained, {"name": LAKE, "kwargs": None, "wrappers": None})
    slippery = registry.replace_options(trained, {"name": LAKE, "kwargs": '{"is_slippery": true}'})
    bare = registry.replace_options(trained, {"name": LAKE, "kwargs": "{}", "wrappers": ""})

    assert same == trained
    assert slippery == {**trained, "kwargs": {"is_slippery": True}}
    assert bare == {"max_episode_steps": 9}


def test_crafter_takes_its_area() -> None:
    pytest.importorskip(
        "crafter", reason="the package crafter is not there: pip install 'motif-jax[crafter]'"
    )

    options = options_of("Crafter-v1", kwargs='{"area": [24, 30]}')
    environment, _ = started("Crafter-v1", 0, **options)

    assert environment.game.world.area == (24, 30)


@pytest.mark.parametrize(
    ("wrappers", "reward"),
    [
        (f"{TOYS}:Doubled,{TOYS}:Lowered", -1.0),
        (f"{TOYS}:Lowered, {TOYS}:Doubled", -2.0),
        (f"{TOYS}:Lowered,{TOYS}:Doubled,{TOYS}:Doubled", -4.0),
    ],
)
def test_wrappers_are_applied_in_their_order(wrappers: str, reward: float) -> None:
    environment, out = started(**options_with_name(wrappers=wrappers))

    assert environment.step(1, out) == (reward, RUNNING)


def options_with_name(**section: object) -> dict[str, object]:
    """The toy vault with the options of a section."""
    return {"name": VAULT["name"], **registry.options_of({**VAULT, **section})}


def test_an_agent_sees_the_spaces_of_the_wrapped_environment() -> None:
    environment, out = started(
        "gym:CartPole-v1", **options_of("gym:CartPole-v1", wrappers=f"{TOYS}:two_observations")
    )
    first = out["observation"].copy()

    environment.step(0, out)

    assert environment.spec.observation["observation"].shape == (2, 4)
    np.testing.assert_array_equal(out["observation"][0], first[1])


def test_wrappers_of_gymnasium_need_no_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    wrappers = "gymnasium.wrappers:TimeAwareObservation"

    environment, out = started(
        "gym:CartPole-v1", **options_of("gym:CartPole-v1", wrappers=wrappers)
    )
    times = []
    for _ in range(3):
        times.append(out["observation"][-1])
        environment.step(0, out)

    assert out["observation"].shape == (5,)
    assert times == [0, 1, 2]


def test_wrappers_that_only_data_name_are_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    wrapper = f"{TOYS}:named_by_data_alone"

    with pytest.raises(
        UserError, match=f"config.environment.wrappers={wrapper}: .*--config.trust={wrapper}"
    ):
        registry.spec(LAKE, wrappers=wrapper)


class Pictures(gymnasium.Env):
    """Shows a grey picture of 30 rows and 20 columns in three colours, with the number of the step
    in all of it.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (30, 20, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._steps = 0
        return self._picture(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self._picture(), 0.0, False, False, {}

    def _picture(self) -> np.ndarray:
        return np.full((30, 20, 3), self._steps, np.uint8)


def test_the_wrapper_of_the_page_stacks_pictures_in_their_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "environments.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (example,) = [block for block in blocks if "def four_grey_pictures" in block]
    (tmp_path / "stacking.py").write_text(example)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MOTIF_JAX_TRUST", "stacking")
    gymnasium.register("Pictures-v0", entry_point=Pictures)

    environment, out = started("gym:Pictures-v0", wrappers="stacking:four_grey_pictures")
    for _ in range(5):
        environment.step(0, out)

    assert environment.spec.image_fields == ("observation",)
    np.testing.assert_array_equal(out["observation"], np.broadcast_to([2, 3, 4, 5], (30, 20, 4)))
