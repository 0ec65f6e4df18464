"""Actions of gymnasium's spaces as numbers, and masks of them: `config.environment.action_bins` and
`action_mask`.
"""

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
    ActionTable,
    UnsupportedActionsError,
    action_names,
    make_actions,
)
from motif_jax.envs.gym_task.captions import CaptionedStep
from motif_jax.envs.spec import MASKED
from motif_jax.play import policies
from tests.envs.playing import started

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
GATES = "gym:ToyGates-v0"
TOYS = "tests.gym_toys"


def options_of(name: str, **section: object) -> dict[str, object]:
    return {"name": name, **registry.options_of({"name": name, "modules": TOYS, **section})}


def test_a_discrete_action_begins_at_the_spaces_start() -> None:
    table = ActionTable(spaces.Discrete(3, start=-1))

    assert [table.value(action) for action in range(table.count)] == [-1, 0, 1]
    assert table.names == ()


def test_continuous_numbers_take_even_values_from_bound_to_bound() -> None:
    table = ActionTable(spaces.Box(np.float32([-2.0]), np.float32([1.0]), dtype=np.float32), bins=4)

    values = [table.value(action) for action in range(table.count)]

    np.testing.assert_array_equal(np.concatenate(values), [-2, -1, 0, 1])
    assert values[0].dtype == np.float32
    assert table.names == ("-2", "-1", "0", "1")


def test_each_combination_of_several_numbers_is_an_action() -> None:
    table = ActionTable(BOX, bins=3)

    values = [tuple(table.value(action).tolist()) for action in range(table.count)]

    assert table.count == 9
    assert len(set(values)) == 9
    assert values[:4] == [(-1, -1), (-1, 0), (-1, 1), (0, -1)]
    assert table.names[1] == "-1, 0"


@pytest.mark.parametrize(
    ("space", "bins", "count"),
    [
        (spaces.MultiDiscrete([2, 3], start=[5, 0]), 0, 6),
        (spaces.MultiDiscrete([[2, 3], [1, 2]]), 0, 12),
        (spaces.MultiBinary(3), 0, 8),
        (spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary((2, 1)))), 0, 8),
        (spaces.Dict(dial=BOX, lever=spaces.Discrete(3, start=1)), 2, 12),
        (spaces.Box(0, 2, (2,), np.int64), 9, 9),
        (spaces.Box(np.float32([2, 0]), np.float32([2, 1])), 3, 3),
        (spaces.Box(1, 1 + 2e-7, (1,), np.float32), 5, 3),
    ],
)
def test_every_action_is_in_its_space_and_none_twice(
    space: spaces.Space, bins: int, count: int
) -> None:
    table = ActionTable(space, bins)

    values = [table.value(action) for action in range(table.count)]

    assert table.count == count
    assert all(space.contains(value) for value in values)
    assert len({str(value) for value in values}) == count


def test_an_environment_that_overwrites_its_action_changes_no_later_action() -> None:
    table = ActionTable(BOX, bins=2)

    table.value(3)[:] = 7

    np.testing.assert_array_equal(table.value(3), [1, 1])


def test_as_many_actions_as_are_allowed_can_be_played() -> None:
    assert ActionTable(spaces.MultiBinary(12)).count == MAX_ACTIONS


@pytest.mark.parametrize(
    ("space", "bins", "allowed"),
    [
        (BOX, 0, "at least 2, for Box.* has continuous numbers"),
        (spaces.Box(0, 2, (2,), np.int64), 0, "at least 2, for Box.* has whole numbers"),
        (BOX, 1, "at least 2, for Box"),
        (spaces.Discrete(4), 3, "left at 0"),
        (spaces.MultiDiscrete([2, 2]), 3, "left at 0"),
    ],
)
def test_bins_that_do_not_fit_the_space_are_refused(
    space: spaces.Space, bins: int, allowed: str
) -> None:
    with pytest.raises(
        UserError, match=rf"config.environment.action_bins={bins}: must be {allowed}"
    ):
        ActionTable(space, bins)


def test_real_numbers_are_spread_over_the_bounds_of_their_space() -> None:
    space = spaces.Dict(
        turn=spaces.Box(-2, 6, (2,), np.float32), lift=spaces.Box(0, 1, (), np.float64)
    )
    actions = make_actions(space)

    lowest = actions.value([-1.0, -1.0, -1.0])
    between = actions.value([0.0, 0.0, 0.5])

    assert (actions.count, actions.size) == (0, 3)
    assert space.contains(lowest)
    assert space.contains(between)
    np.testing.assert_array_equal(lowest["turn"], [-2, -2])
    np.testing.assert_allclose([*between["turn"], between["lift"]], [2, 2, 0.75], atol=1e-6)


@pytest.mark.parametrize(
    "space",
    [
        BOX,
        spaces.Tuple((BOX, spaces.Discrete(2))),
        spaces.Box(0, 2, (2,), np.int64),
        spaces.Discrete(3),
    ],
)
def test_bins_and_numbered_actions_make_a_table(space: spaces.Space) -> None:
    bins = 0 if isinstance(space, spaces.Discrete) else 2
    assert isinstance(make_actions(space, bins), ActionTable)


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.3), (-1.7e308, 1.7e308), (2.0, 2.0)])
def test_the_bounds_are_reached_and_never_passed(low: float, high: float) -> None:
    space = spaces.Box(low, high, (1,), np.float64)
    actions = make_actions(space)

    assert actions.value([-1.0])[0] == low
    assert actions.value([1.0])[0] == high
    for number in np.linspace(-1, 1, 101):
        assert space.contains(actions.value([float(number)]))


def test_a_number_without_bounds_is_refused() -> None:
    with pytest.raises(UnsupportedActionsError, match="has no bounds; a wrapper that bounds it"):
        make_actions(spaces.Box(-np.inf, np.inf, (1,), np.float32))


def test_real_numbers_have_no_mask() -> None:
    options = options_of("gym:Pendulum-v1", action_mask="info:allowed")
    with pytest.raises(
        UserError, match=r"config.environment.action_mask='info:allowed': must be empty"
    ):
        started(**options)


def test_a_continuous_environment_is_played_by_its_bins() -> None:
    environment, out = started(**options_of("gym:MountainCarContinuous-v0", action_bins=3))
    left, rest, right = range(3)

    rewards = [environment.step(action, out)[0] for action in (left, rest, right)]

    # A step costs a tenth of the squared force.
    np.testing.assert_allclose(rewards, [-0.1, 0, -0.1], atol=1e-6)
    assert environment.spec.action_names == ("-1", "0", "1")


@pytest.mark.parametrize("actions", [None, 5, [0, 1], "ab"])
def test_an_attribute_actions_without_names_is_no_list_of_names(actions: object) -> None:
    environment = gymnasium.make("CartPole-v1")
    environment.unwrapped.actions = actions
    environment.unwrapped.get_action_meanings = "none"

    names = action_names(environment, make_actions(environment.action_space, 0))

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
