"""Observations that are not of their space are refused, and those that numpy keeps are taken."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from tests.envs.playing import started


class Shown(gymnasium.Env):
    """Shows one observation again and again, and `info` from the first step on."""

    metadata = {"render_modes": ["rgb_array"]}
    picture: Any = None

    def __init__(
        self,
        space: gymnasium.Space,
        value: Any,
        info: Mapping[Any, Any],
        render_mode: str | None = None,
    ):
        self.observation_space = space
        self.action_space = spaces.Discrete(2)
        self._value = value
        self._info = info
        self.render_mode = render_mode

    def show(self, value: Any) -> None:
        """Shows another value from the next step on."""
        self._value = value

    def render(self) -> Any:
        return self.picture

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[Any, Any]]:
        return self._value, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[Any, Any]]:
        return self._value, 0.5, False, False, dict(self._info)


# Every environment that a test registers has a name of its own, because specs are cached by the
# name.
SERIAL = itertools.count()


def showing(space: gymnasium.Space, value: Any, info: Mapping[Any, Any] | None = None) -> str:
    """The name of a new environment `Shown`."""
    name = f"Shown{next(SERIAL)}-v0"
    gymnasium.register(name, entry_point=lambda **drawn: Shown(space, value, info or {}, **drawn))
    return f"gym:{name}"


def registered(shown: Shown) -> str:
    """The name of an environment that is this one however often it is made."""
    name = f"Shown{next(SERIAL)}-v0"
    gymnasium.register(name, entry_point=lambda **_: shown)
    return f"gym:{name}"


@pytest.mark.parametrize(
    ("space", "value", "misfit"),
    [
        (
            spaces.Box(0, 255, (32, 32, 3), np.uint8),
            np.full((32, 32, 3), 0.5),
            "has dtype float64, its space uint8",
        ),
        (spaces.Box(-1, 1, (4, 3)), np.zeros(3), r"has shape \[3\], its space \[4, 3\]"),
        (spaces.Discrete(5), -1, r"is -1, outside Discrete\(5\)"),
        (spaces.MultiDiscrete([2, 3]), [1, 3], r"is \[1, 3\], outside MultiDiscrete"),
        (
            spaces.Box(-128, 127, (1,), np.int8),
            [2**31 + 5],
            "has numbers from 2147483653 to 2147483653, outside int32",
        ),
        (spaces.Discrete(5), 1.5, r"is 1\.5, outside Discrete\(5\)"),
        (spaces.Tuple([spaces.Discrete(2)]), (1, 0), "has 2 parts, its space 1"),
        (spaces.Dict(a=spaces.Discrete(2)), {"b": 1}, "'a' is missing"),
    ],
)
def test_an_observation_outside_its_space_is_refused(
    space: gymnasium.Space, value: Any, misfit: str
) -> None:
    name = showing(space, value)

    with pytest.raises(UserError, match=rf"config\.environment\.name={name}: its .*{misfit}"):
        registry.check(name)


@pytest.mark.parametrize(
    ("space", "value", "later", "misfit"),
    [
        (spaces.Box(-1, 1, (4,)), np.zeros(4), np.zeros(1), r"has shape \[1\], its space \[4\]"),
        (spaces.Discrete(3), 2, -1, r"is -1, outside Discrete\(3\)"),
        (spaces.Discrete(3), 2, 3, r"is 3, outside Discrete\(3\)"),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [1, -1], r"is \[1, -1\], outside MultiDiscrete"),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [2, 0], r"is \[2, 0\], outside MultiDiscrete"),
        (spaces.Box(0, 255, (16, 16), np.uint8), np.zeros((16, 16), np.uint8), None, "has shape"),
    ],
)
def test_a_late_misfit_is_refused_with_its_step(
    space: gymnasium.Space, value: Any, later: Any, misfit: str
) -> None:
    shown = Shown(space, value, {})
    environment, out = started(registered(shown), 0)
    for _ in range(6):
        environment.step(0, out)
    shown.show(later)

    line = f"its 'observation' {misfit}.*, at step 7 of an episode"
    with pytest.raises(UserError, match=line):
        environment.step(0, out)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), [3, 255]),
        (spaces.Box(0, 255, (2, 2, 3), np.uint8), np.full((2, 2, 3), 255)),
        (spaces.Box(-1, 1, (2,)), [0, 1]),
        # beyond its bounds, which numpy does not change
        (spaces.Box(-1, 1, (2,)), np.array([2.0, 0.5])),
        (spaces.Discrete(3, start=-1), np.int64(-1)),
        (spaces.Discrete(3), np.array(2)),
        (spaces.MultiDiscrete([2, 3]), (1, 2)),
        (spaces.MultiBinary(2), [True, False]),
    ],
)
def test_an_observation_of_another_type_that_numpy_keeps_is_taken(
    space: gymnasium.Space, value: Any
) -> None:
    registry.check(showing(space, value))


def test_two_fields_of_one_name_are_refused() -> None:
    cell = spaces.Box(0, 1, (1,))
    space = spaces.Dict({"a": spaces.Dict(b=cell), "a.b": cell})

    with pytest.raises(
        UserError, match=r"two fields of its observation have one name, of a\.b, a\.b"
    ):
        registry.spec(showing(space, None))


def test_a_mask_may_have_the_name_that_it_has_here() -> None:
    space = spaces.Dict(action_mask=spaces.MultiDiscrete([2, 2]), cell=spaces.Discrete(2))
    name = showing(space, {"action_mask": np.array([1, 0]), "cell": 1})

    environment, out = started(name, 0, action_mask="obs:action_mask")

    assert out["action_mask"].tolist() == [1, 0]
    assert set(environment.spec.observation) == {"action_mask", "cell"}


def test_a_text_that_is_the_whole_observation_is_the_caption() -> None:
    name = showing(spaces.Text(20), "A door opens.")

    _, out = started(name, 0, text="obs:observation")

    assert out["caption"].tobytes().rstrip(b"\0") == b"A door opens."


def test_info_keys_that_are_no_texts_have_their_texts_name() -> None:
    environment, out = started(showing(spaces.Discrete(2), 1, {3: 1.5}), 0)

    environment.step(0, out)

    assert environment.episode_info()["3"] == 1.5
