"""Any gymnasium environment as a task: fields, captions, ends, refusals."""

from __future__ import annotations

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.gym_task.spaces import leaves
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, EngineError
from tests.envs.playing import started

TOYS = {"modules": "tests.gym_toys"}
VAULT = "gym:ToyVault-v0"


@pytest.mark.parametrize(("text", "removed"), [("info:said", set()), ("obs:sound", {"sound"})])
def test_nested_spaces_are_fields_by_name(text, removed):
    spec = registry.spec(VAULT, **TOYS, text=text, text_bytes=32)

    fields = {"clock", "me.cell", "me.speed", "sound", "switches", "caption", "caption_count"}
    # `me.speed` is float64: the second field has what float32 rounds away of it.
    assert set(spec.observation) == (fields | {"me.speed.rest"}) - removed
    assert spec.observation["caption"].shape == (32,)
    assert (spec.text_field, spec.count_field, spec.num_actions) == ("caption", "caption_count", 3)


def test_a_level_of_minigrid_shows_its_mission_as_text():
    spec = registry.spec("gym:MiniGrid-DoorKey-5x5-v0", modules="minigrid", text="obs:mission")
    shapes = {name: (field.shape, field.dtype) for name, field in spec.observation.items()}

    assert shapes == {
        "direction": ((4,), "uint8"),
        "image": ((7, 7, 3), "uint8"),
        "caption": ((256,), "uint8"),
        "caption_count": ((), "int32"),
    }
    assert spec.num_actions == 7


def test_a_caption_is_its_steps_text_and_counts_itself():
    """The key is on the left. Standing still repeats its caption."""
    environment, out = started(VAULT, 1, **TOYS, text="info:said", text_bytes=32)
    counts = {"": 1}
    for action in (2, 0, 0, 0, 0, 2, 2):
        environment.step(action, out)
        caption = decoded(out["caption"])
        counts[caption] = counts.get(caption, 0) + 1
        assert out["caption_count"] == counts[caption]
    assert counts.keys() >= {"You stand still.", "You find a key."}
    assert environment.episode_info()["captions_cut"] == 0


def test_numbers_of_info_are_numbers_of_the_episode():
    environment, out = started(VAULT, 1, **TOYS, text="info:said", text_bytes=32)

    environment.step(0, out)

    # The game's own `length` does not replace the number of steps.
    numbers = environment.episode_info()
    assert (numbers["length"], numbers["info_length"], numbers["steps_with_key"]) == (1, 99, 0)


BYTES = spaces.Box(0, 255, (3,), np.uint8)
PAIR = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3, start=-1)])


@pytest.mark.parametrize(
    ("space", "value", "dtype", "expected"),
    [
        # Bytes that are not an image are numbers from 0 to 1.
        (BYTES, np.array([0, 255, 51], np.uint8), "float32", [0, 1, 0.2]),
        (spaces.Box(-9, 9, (), np.int64), -9, "int32", -9),
        (spaces.Box(-(2**40), 2**40, (1,), np.int64), [-(2**33)], "float32", [-(2.0**33)]),
        (spaces.Box(0, 1, (2,), np.bool_), [True, False], "uint8", [1, 0]),
    ],
)
def test_a_box_is_written_in_a_type_that_holds_it(space, value, dtype, expected):
    leaf = next(leaves(spaces.Dict(box=space), 8))
    out = np.zeros(leaf.field.shape, leaf.field.dtype)

    leaf.write({"box": value}, out)

    assert out.dtype == dtype
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    assert not leaf.image


def test_discrete_values_are_one_hot_from_their_start():
    first, second = leaves(spaces.Dict(both=PAIR), 8)
    outs = [np.zeros(leaf.field.shape, leaf.field.dtype) for leaf in (first, second)]

    for leaf, out in zip((first, second), outs, strict=True):
        leaf.write({"both": (1, -1)}, out)

    assert (first.name, second.name) == ("both.0", "both.1")
    assert [out.tolist() for out in outs] == [[0, 1], [1, 0, 0]]


def test_truncation_is_no_termination():
    for limit, steps in (({}, 30), ({"max_episode_steps": 6}, 6)):  # it was registered with 30
        environment, out = started(VAULT, 1, **TOYS, **limit)
        ended = [environment.step(2, out) for _ in range(steps)]
        assert ended == [(0.0, RUNNING)] * (steps - 1) + [(0.0, TRUNCATED)]


def test_an_error_of_the_environment_is_one_of_its_engine():
    environment, out = started("gym:ToyMortal-v0", 4, **TOYS)
    for _ in range(9):
        environment.step(1, out)
    with pytest.raises(EngineError, match="fails at step 10 with action 1") as error:
        environment.step(1, out)
    assert isinstance(error.value.__cause__, OSError)


class Stub(gymnasium.Env):
    """What is given, again and again; `info` from the second step on."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, space=None, actions=None, info=(), fails="", render_mode=None):
        self.observation_space = space or spaces.Discrete(2)
        self.action_space = actions or spaces.Discrete(2)
        self._info = list(info)
        self._fails = fails
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        if self._fails:
            raise RuntimeError(self._fails)
        return 1, {}

    def step(self, action):
        return 1, 0.5, False, False, self._info.pop(0) if self._info else {}


# Every environment that a test registers has a name of its own, because specs are cached by the
# name.
SERIAL = itertools.count()


def stub(**arguments):
    """The name of a new environment `Stub`."""
    name = f"Stub{next(SERIAL)}-v0"
    gymnasium.register(name, entry_point=lambda **drawn: Stub(**arguments, **drawn))
    return f"gym:{name}"


def test_info_numbers_become_the_episodes_while_there_is_room():
    many = {f"n{number:02}": number for number in range(40)}
    final_info = {
        "is_success": True,
        "final_info": {"seed": np.float32(2.5)},
        "bad": np.nan,
        "text": "a",
    }
    environment, out = started(stub(info=[{}, final_info, many, {"n03": 9}]))
    for _ in range(5):
        environment.step(0, out)
    # An episode has at most 32 numbers of info: success, info_seed and 30 of `many`.
    numbers = {f"n{number:02}": float(number) for number in range(30)} | {"n03": 9.0}
    known = {"return": 2.5, "length": 5.0, "success": 1.0, "info_seed": 2.5}
    assert environment.episode_info() == known | numbers
    environment.reset(0, out)
    assert environment.episode_info() == {"return": 0.0, "length": 0.0}


@pytest.mark.parametrize(
    ("shown", "numbers"),
    [
        ([0, 0, 1], {"success": 1.0}),
        ([0, 1, 1], {"success": 1.0}),
        ([0, 1, None], {"success": 1.0}),
        ([0, 0, 0], {"success": 0.0}),
        ([1, 0, 0], {"info_success": 0.0}),
        ([0, 1, 0, 1], {"info_success": 1.0}),
    ],
)
@pytest.mark.parametrize("name", ["success", "is_success"])
def test_a_success_that_falls_within_an_episode_is_none(name, shown, numbers):
    info = [{} if value is None else {name: bool(value)} for value in shown]
    environment, out = started(stub(info=info))
    for _ in shown:
        environment.step(0, out)
    known = {"return": len(shown) / 2, "length": float(len(shown))}
    assert environment.episode_info() == known | numbers


def test_a_number_may_be_called_as_a_success_that_falls():
    environment, out = started(stub(info=[{"success": True, "info_success": 3}]))
    environment.step(0, out)
    numbers = environment.episode_info()
    assert (numbers["success"], numbers["info_info_success"]) == (1.0, 3.0)


def test_an_info_may_call_its_last_observation_final_info():
    environment, out = started(stub(info=[{"final_info": "won", "gold": 3}]))
    environment.step(0, out)

    assert environment.episode_info()["gold"] == 3.0


class ThreeSteps(gymnasium.Env):
    """Pays 1, 2 and 3, and ends at the third step; `ends` says how."""

    observation_space = spaces.Discrete(9)
    action_space = spaces.Discrete(2)

    def __init__(self, ends="terminated", **arguments):
        self._ends = ends
        self._given = arguments

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            np.random.RandomState(np.int32(seed))  # old generators take 32 bits, C's take 31
        self._step = 0
        return 0, {}

    def step(self, action):
        self._step += 1
        ended = self._step == 3
        reward = self._given.get("reward", {}).get(self._step, float(self._step))
        ends = (
            ended and self._ends in ("terminated", "both"),
            ended and self._ends in ("truncated", "both"),
        )
        return self._step, reward, *ends, {}


def three_steps(**arguments):
    """The name of a new environment `ThreeSteps`."""
    name = f"ThreeSteps{next(SERIAL)}-v0"
    gymnasium.register(name, entry_point=lambda: ThreeSteps(**arguments))
    return f"gym:{name}"


@pytest.mark.parametrize(
    ("function", "first", "third"),
    [
        ("by_name", "None 0.0 False False", "1 3.0 True False"),
        ("in_order", "0 0 ThreeSteps None", "3 0 ThreeSteps 1"),
        ("of_any", *["action environment info observation reward terminated truncated"] * 2),
    ],
)
def test_a_caption_function_takes_what_it_needs(function, first, third):
    environment, out = started(three_steps(), text=f"{TOYS['modules']}:{function}")
    assert decoded(out["caption"]) == first
    for _ in range(3):
        environment.step(1, out)
    assert decoded(out["caption"]) == third


def test_the_step_limit_is_a_truncation_for_captions():
    environment, out = started(
        three_steps(), text=f"{TOYS['modules']}:by_name", max_episode_steps=1
    )
    environment.step(0, out)
    assert decoded(out["caption"]) == "0 1.0 False True"


def test_seeds_fit_the_generators_of_old_environments():
    registry.check(three_steps())
    environment, out = started(three_steps(), 2**62 + 5)
    assert environment.step(0, out) == (1.0, RUNNING)


@pytest.mark.parametrize(
    ("ends", "end"), [("terminated", TERMINATED), ("truncated", TRUNCATED), ("both", TERMINATED)]
)
def test_ends_are_passed_on_and_simultaneous_ones_are_a_termination(ends, end):
    environment, out = started(three_steps(ends=ends))
    assert [environment.step(0, out)[1] for _ in range(3)] == [RUNNING, RUNNING, end]


def test_a_refused_reward_is_named_with_its_step():
    environment, out = started(three_steps(reward={2: np.nan}), 7)
    environment.step(0, out)
    with pytest.raises(
        UserError,
        match=r"gym:ThreeSteps\d+-v0: its 'reward' is nan at step 2 of the episode with seed 7",
    ):
        environment.step(0, out)


def test_an_infinite_reward_is_passed_on():
    environment, out = started(three_steps(reward={2: np.inf}))
    assert [environment.step(0, out)[0] for _ in range(2)] == [1.0, np.inf]


UNTRUSTED = "a file of data asks for this code from outside the package, .* if you trust it, give --config.trust="


@pytest.mark.parametrize(
    "options", [{"modules": "no_such_module"}, {"text": "tests.gym_toys:praise"}]
)
def test_untrusted_code_is_refused_with_the_flag_that_trusts_it(monkeypatch, options):
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    ((key, value),) = options.items()

    with pytest.raises(
        UserError, match=rf"^config\.environment\.{key}={value}: {UNTRUSTED}{value}"
    ):
        registry.check(stub(), options)


def test_limits_of_texts_and_spaces_are_inclusive():
    registry.check(
        stub(info=[{}] * 199 + [{"said": "a"}]), {"text": "info:said", "text_bytes": 256}
    )
    assert registry.spec(stub(space=spaces.Discrete(4096))).observation["observation"].shape == (
        4096,
    )


@pytest.mark.parametrize(
    ("name", "options", "trusted"),
    [
        (VAULT, TOYS, "tests.gym_toys"),
        ("gym:tests.gym_toys:ToyVault-v0", {}, "tests.gym_toys"),
        ("gym:CartPole-v1", {"text": "tests.gym_toys:praise"}, "tests.gym_toys:praise"),
    ],
)
def test_modules_that_data_names_are_not_imported(monkeypatch, name, options, trusted):
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")

    # As no other test describes it, so that no spec of it is kept.
    unseen_options = {**options, "text_bytes": 251}
    with pytest.raises(UserError, match=f"--config.trust={trusted}"):
        registry.spec(name, **unseen_options)


def test_a_module_that_the_user_names_is_imported(monkeypatch):
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    name = "gym:tests.gym_toys:ToyVault-v0"

    entry_points.trust(entry_points.named({"name": name}))

    assert registry.spec(name, text_bytes=250).num_actions == 3
