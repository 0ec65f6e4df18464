"""Actions of gymnasium's spaces as numbers, and masks of them: `config.environment.action_mask`."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from motif_jax.core.errors import UserError
from motif_jax.envs import determinism, registry
from motif_jax.envs.gym_task.actions import (
    MAX_ACTIONS,
    ActionMask,
    UnsupportedActionsError,
    action_names,
    make_actions,
)
from motif_jax.envs.gym_task.captions import CaptionedStep
from motif_jax.envs.spec import MASKED
from motif_jax.rl.actors import policies
from tests.envs.playing import started

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
GATES = "gym:ToyGates-v0"
TOYS = "tests.gym_toys"


def options_of(name: str, **section: object) -> dict[str, object]:
    return {"name": name, **registry.options_of({"name": name, "modules": TOYS, **section})}


def test_a_discrete_action_begins_at_the_spaces_start() -> None:
    actions = make_actions(spaces.Discrete(3, start=-1))

    assert [actions.value(action) for action in range(actions.count)] == [-1, 0, 1]
    assert actions.names == ()


def test_each_combination_of_several_numbers_is_an_action() -> None:
    actions = make_actions(spaces.MultiDiscrete([3, 2], start=[-1, 5]))

    values = [tuple(actions.value(action).tolist()) for action in range(actions.count)]

    assert values == [(-1, 5), (-1, 6), (0, 5), (0, 6), (1, 5), (1, 6)]
    assert actions.names[:2] == ("-1, 5", "-1, 6")


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (spaces.MultiDiscrete([2, 3], start=[5, 0]), 6),
        (spaces.MultiDiscrete([[2, 3], [1, 2]]), 12),
        (spaces.MultiBinary(3), 8),
        (spaces.MultiBinary((2, 1)), 4),
    ],
)
def test_every_action_is_in_its_space_and_none_twice(space: spaces.Space, count: int) -> None:
    actions = make_actions(space)

    values = [actions.value(action) for action in range(actions.count)]

    assert actions.count == count
    assert all(space.contains(value) for value in values)
    assert len({str(value) for value in values}) == count


def test_an_environment_that_overwrites_its_action_changes_no_later_action() -> None:
    actions = make_actions(spaces.MultiBinary(2))

    actions.value(3)[:] = 0

    np.testing.assert_array_equal(actions.value(3), [1, 1])


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0, 2, (2,), np.int64), "has whole numbers; a wrapper that makes them"),
        (spaces.Box(-np.inf, np.inf, (1,), np.float32), "has no bounds; a wrapper that bounds it"),
        (spaces.Dict(dial=BOX), "a Dict cannot be played; a wrapper that makes it"),
    ],
    ids=str,
)
def test_spaces_that_cannot_be_played_are_refused(space: spaces.Space, message: str) -> None:
    with pytest.raises(UnsupportedActionsError, match=message):
        make_actions(space)


def test_as_many_actions_as_are_allowed_can_be_played() -> None:
    assert make_actions(spaces.MultiBinary(12)).count == MAX_ACTIONS


def test_real_numbers_are_spread_over_the_bounds_of_their_space() -> None:
    space = spaces.Box(np.float32([[-2], [0]]), np.float32([[6], [1]]))
    actions = make_actions(space)

    lowest = actions.value([-1.0, -1.0])
    between = actions.value([0.0, 0.5])

    assert (actions.count, actions.size) == (0, 2)
    assert space.contains(lowest)
    assert space.contains(between)
    np.testing.assert_array_equal(lowest, [[-2], [0]])
    np.testing.assert_allclose(between, [[2], [0.75]], atol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.3), (-1.7e308, 1.7e308), (2.0, 2.0)])
def test_the_bounds_are_reached_and_never_passed(low: float, high: float) -> None:
    space = spaces.Box(low, high, (1,), np.float64)
    actions = make_actions(space)

    assert actions.value([-1.0])[0] == low
    assert actions.value([1.0])[0] == high
    for number in np.linspace(-1, 1, 101):
        assert space.contains(actions.value([float(number)]))


def test_real_numbers_have_no_mask() -> None:
    options = options_of("gym:Pendulum-v1", action_mask="info:allowed")
    with pytest.raises(ValueError, match="actions of real numbers have no mask"):
        started(**options)


@pytest.mark.parametrize("actions", [None, 5, [0, 1], "ab"])
def test_an_attribute_actions_without_names_is_no_list_of_names(actions: object) -> None:
    environment = gymnasium.make("CartPole-v1")
    environment.unwrapped.actions = actions
    environment.unwrapped.get_action_meanings = "none"

    names = action_names(environment, make_actions(environment.action_space))

    assert names == ()


@pytest.mark.parametrize("mask", ["info:allowed", "obs:gates"])
def test_a_step_shows_which_actions_it_allows(mask: str) -> None:
    environment, out = started(**options_of(GATES, action_mask=mask))
    first = out["action_mask"].tolist()

    environment.step(first.index(1), out)

    assert environment.spec.mask_field == "action_mask"
    assert first == [1, 0, 0]
    assert out["action_mask"].tolist() == [0, 1, 0]


def test_an_observed_mask_is_no_input_of_the_network() -> None:
    spec = registry.spec(**options_of(GATES, action_mask="obs:gates"))

    assert set(spec.observation) == {"place", "action_mask"}


def test_random_players_take_allowed_actions_alone() -> None:
    options = options_of(GATES, action_mask="info:allowed")
    environment, out = started(**options)
    choose = policies.RandomPolicy().player(1, environment.spec)

    for _ in range(9):
        environment.step(choose(out), out)  # a closed gate would raise

    registry.check(GATES, {key: value for key, value in options.items() if key != "name"})
    determinism.require(
        GATES, {key: value for key, value in options.items() if key != "name"}, "a test"
    )


def test_logits_of_closed_gates_are_masked() -> None:
    environment, out = started(**options_of(GATES, action_mask="info:allowed"))

    logits = policies.masked(
        np.zeros((1, 3)), {name: field[None] for name, field in out.items()}, environment.spec
    )

    assert logits.tolist() == [[0, MASKED, MASKED]]


@pytest.mark.parametrize(
    ("mask", "fault"),
    [
        (None, "a step has none"),
        ([1, 0], r"its shape is \[2\], not \[3\]"),
        ([0.5, 1, 0], "it has numbers besides 0 and 1"),
        ([0, 0, 0], "it allows no action, although the episode goes on"),
    ],
)
def test_a_mask_that_no_policy_can_obey_is_refused(mask: object, fault: str) -> None:
    step = CaptionedStep(None, {} if mask is None else {"allowed": mask}, None)

    with pytest.raises(UserError, match=f"config.environment.action_mask=info:allowed: .*{fault}"):
        ActionMask("info:allowed", 3).read(step)


def test_the_last_step_of_an_episode_may_allow_nothing() -> None:
    step = CaptionedStep(None, {"allowed": [False] * 3}, None, terminated=True)

    assert ActionMask("info:allowed", 3).read(step).tolist() == [0, 0, 0]


def test_a_field_named_like_the_mask_is_refused_beside_one() -> None:
    name = "gym:ToyMasked-v0"

    with pytest.raises(
        UserError, match=f"{name}: a field of its observation must not be called action_mask"
    ):
        registry.spec(**options_of(name, action_mask="info:allowed"))
