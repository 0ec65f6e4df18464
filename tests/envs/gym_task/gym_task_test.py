from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.gym_task import captions
from motif_jax.envs.gym_task.environment import _spec_of as registry_of_specs
from motif_jax.envs.gym_task.spaces import leaves
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, EngineError
from tests.envs.playing import shown, started, told
from tests.recorded_outputs import assert_matches_packed_recording

TOYS = {"modules": "tests.gym_toys"}
VAULT = "gym:ToyVault-v0"


def test_nested_spaces_are_fields_by_name(record):
    parts = {"spec": str(registry.spec(VAULT, **TOYS, text="info:said", text_bytes=32))}
    for text in ("info:said", "obs:sound"):
        parts[text] = shown(VAULT, 30, **TOYS, text=text, text_bytes=32)
    level = {"name": "gym:MiniGrid-DoorKey-5x5-v0", "modules": "minigrid", "text": "obs:mission"}
    parts |= {"shown": shown(**level, steps=1), "level": str(registry.spec(**level))}
    assert_matches_packed_recording("gym_spaces", parts, record)
    assert all(number in parts["info:said"] for number in ("'info_length': 99.0", "'steps_with_key': 1.0"))


def test_boxes_keep_what_they_hold(record):
    space = {"ram": spaces.Box(0, 255, (3,), np.uint8), "whole": spaces.Box(-9, 9, (), np.int64)}
    space |= {"large": spaces.Box(-(2**40), 2**40, (1,), np.int64), "on": spaces.Box(0, 1, (2,), np.bool_)}
    space["both"] = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3, start=-1)])
    value = {"ram": np.array([0, 255, 51], np.uint8), "large": [-(2**33)], "whole": -9, "on": [True, False]}
    value["both"], seen = (1, -1), {}
    for leaf in leaves(spaces.Dict(space), 8):
        out = np.zeros(leaf.field.shape, leaf.field.dtype)
        leaf.write(value, out)
        seen[leaf.name] = f"{out!r} {leaf.image}"
    assert_matches_packed_recording("gym_boxes", seen, record)


def test_truncation_is_no_termination():
    for limit, steps in (({}, 30), ({"max_episode_steps": 6}, 6)):  # it was registered with 30
        environment, out = started(VAULT, 1, **TOYS, **limit)
        ended = [environment.step(2, out) for _ in range(steps)]
        assert ended == [(0.0, RUNNING)] * (steps - 1) + [(0.0, TRUNCATED)]


def test_an_error_of_the_environment_is_one_of_its_engine():
    environment, out = started("gym:ToyMortal-v0", 4, **TOYS)
    for _ in range(9):
        environment.step(1, out)
    with pytest.raises(EngineError, match="fails at step 9 with action 1") as told:
        environment.step(1, out)
    assert isinstance(told.value.__cause__, OSError)


def test_texts_of_functions_and_classes_and_what_is_cut():
    environment, out = started("gym:ToyChatter-v0", **TOYS, text="tests.gym_toys:praise", text_bytes=20)
    assert environment.spec.modules[1:] == ("tests.gym_toys",) * 2, "of the game and of its texts"
    assert decoded(out["caption"]) == ""
    for _ in range(2):
        environment.step(1, out)
    assert decoded(out["caption"]) == "action 1 " + "é" * 5, "a cut falls between letters"
    assert environment.episode_info()["captions_cut"] == 2
    one, out = started("gym:ToyChatter-v0", **TOYS, text="tests.gym_toys:Counting")
    _, out_of_other = started("gym:ToyChatter-v0", **TOYS, text="tests.gym_toys:Counting")
    one.step(0, out)
    assert (decoded(out["caption"]), decoded(out_of_other["caption"])) == ("step 1", "step 0")


def test_texts_are_utf8_up_to_their_first_zero(monkeypatch, record):
    texts = {
        None: b"",
        "a\0b": b"a b",
        "ł": "ł".encode(),
        b"ab\0c": b"ab",
        "T\u00fcr".encode(): "Tür".encode(),
    }
    assert {text: captions.text_bytes_of(text) for text in texts} == texts
    assert captions.text_bytes_of(np.array([65, 0, 66], np.uint8)) == b"A"
    with pytest.raises(TypeError, match="a list, not a text"):
        captions.text_bytes_of(["a"])
    of_info, of_nested = captions.make("info:said"), captions.make("obs:me.said")
    assert of_info(captions.CaptionedStep({"said": "no"}, {"said": "yes"}, None)) == "yes"
    assert of_nested(captions.CaptionedStep({"me": {"said": "here"}}, {"me": {"said": "no"}}, None)) == "here"
    assert of_nested(captions.CaptionedStep({"me": "no"}, {}, None)) is None
    monkeypatch.setenv("MOTIF_JAX_TRUST", "math:pi")
    said = {text: told(captions.make, text) for text in ("caption", "math:pi")}
    assert_matches_packed_recording("gym_texts_refused", said, record)


class Odd(gymnasium.Env):
    """What is given, again and again; `info` from the second step on."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, space=None, actions=None, info=(), fails="", render_mode=None):
        self.observation_space, self.action_space = space or spaces.Discrete(2), actions or spaces.Discrete(2)
        self._info, self._fails, self.render_mode = list(info), fails, render_mode

    def reset(self, *, seed=None, options=None):
        if self._fails:
            raise RuntimeError(self._fails)
        return 1, {}

    def step(self, action):
        return 1, 0.5, False, False, self._info.pop(0) if self._info else {}


def odd(**given):
    gymnasium.registry.pop("Odd-v0", None)
    gymnasium.register("Odd-v0", entry_point=lambda **drawn: Odd(**given, **drawn))
    registry_of_specs.cache_clear()
    return "gym:Odd-v0"


def test_numbers_of_info_are_those_of_the_episode_while_there_is_room():
    many = {f"n{number:02}": number for number in range(40)}
    told = {"is_success": True, "final_info": {"seed": np.float32(2.5)}, "bad": np.nan, "text": "a"}
    environment, out = started(odd(info=[{}, told, many, {"n03": 9}]))
    for _ in range(5):
        environment.step(0, out)
    kept = {f"n{number:02}": float(number) for number in range(30)} | {"n03": 9.0}
    known = {"return": 2.5, "length": 5.0, "success": 1.0, "info_seed": 2.5}
    assert environment.episode_info() == known | kept
    environment.reset(0, out)
    assert environment.episode_info() == {"return": 0.0, "length": 0.0}


class Judged(gymnasium.Env):
    """Pays 1, 2 and 3, and ends at the third step; `ends` says how."""

    observation_space = spaces.Discrete(9)
    action_space = spaces.Discrete(2)

    def __init__(self, ends="terminated", **given):
        self._ends, self._given = ends, given

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            np.random.RandomState(np.int32(seed))  # old generators take 32 bits, C's take 31
        self._step = 0
        return 0, {}

    def step(self, action):
        self._step += 1
        ended = self._step == 3
        reward = self._given.get("reward", {}).get(self._step, float(self._step))
        ends = ended and self._ends in ("terminated", "both"), ended and self._ends in ("truncated", "both")
        return self._step, reward, *ends, {}


def judged(**given):
    gymnasium.registry.pop("Judged-v0", None)
    gymnasium.register("Judged-v0", entry_point=lambda: Judged(**given))
    registry_of_specs.cache_clear()
    return "gym:Judged-v0"


HERE = "tests.gym_toys"


@pytest.mark.parametrize(
    ("function", "first", "third"),
    [
        ("by_name", "None 0.0 False False", "1 3.0 True False"),
        ("in_order", "0 0 Judged None", "3 0 Judged 1"),
        ("of_any", *["action environment info observation reward terminated truncated"] * 2),
    ],
)
def test_a_caption_function_takes_what_it_needs(function, first, third):
    environment, out = started(judged(), text=f"{HERE}:{function}")
    assert decoded(out["caption"]) == first
    for _ in range(3):
        environment.step(1, out)
    assert decoded(out["caption"]) == third


def test_a_caption_function_with_other_arguments_is_refused_with_those_there_are():
    with pytest.raises(
        UserError, match="observation, info, environment, action, reward, terminated, truncated"
    ):
        registry.spec(judged(), text=f"{HERE}:of_two")


def test_the_step_limit_is_a_truncation_for_captions():
    environment, out = started(judged(), text=f"{HERE}:by_name", max_episode_steps=1)
    environment.step(0, out)
    assert decoded(out["caption"]) == "0 1.0 False True"


def test_seeds_fit_the_generators_of_old_environments():
    registry.check(judged())
    environment, out = started(judged(), 2**62 + 5)
    assert environment.step(0, out) == (1.0, RUNNING)


def test_a_seed_that_an_environment_cannot_take_is_refused_before_the_run():
    class Small(Judged):
        def reset(self, *, seed=None, options=None):
            if seed is not None and seed >= 1 << 16:
                raise ValueError("seed is too large")
            return super().reset(seed=seed)

    gymnasium.registry.pop("Small-v0", None)
    gymnasium.register("Small-v0", entry_point=Small)
    with pytest.raises(UserError, match="cannot be played: ValueError: seed is too large"):
        registry.check("gym:Small-v0")


@pytest.mark.parametrize(
    ("ends", "end"), [("terminated", TERMINATED), ("truncated", TRUNCATED), ("both", TERMINATED)]
)
def test_ends_of_both_kinds_are_terminations(ends, end):
    environment, out = started(judged(ends=ends))
    assert [environment.step(0, out)[1] for _ in range(3)] == [RUNNING, RUNNING, end]


def test_a_reward_that_is_no_number_is_refused_by_name_and_step():
    environment, out = started(judged(reward={2: np.nan}), 7)
    environment.step(0, out)
    with pytest.raises(
        UserError, match="gym:Judged-v0: its 'reward' is nan at step 2 of the episode with seed 7"
    ):
        environment.step(0, out)


def test_an_infinite_reward_may_be_clipped():
    environment, out = started(judged(reward={2: np.inf}))
    assert [environment.step(0, out)[0] for _ in range(2)] == [1.0, np.inf]


ODD = [
    ({}, {"text_bytes": 257}),
    ({}, {"text_bytes": 0}),
    ({}, {"fields": ("smell", "frame", "sound")}),
    ({"actions": spaces.MultiBinary(2)}, {}),
    ({"space": spaces.Discrete(4097)}, {}),
    ({"space": spaces.Dict(a=spaces.Sequence(spaces.Discrete(2)))}, {}),
    ({"space": spaces.Dict(frame=spaces.Discrete(2), caption=spaces.Discrete(2))}, {}),
    ({}, {"text": "obs:smell"}),
    ({}, {"text": "info:said"}),
    ({"info": [{}] * 200 + [{"said": "a"}]}, {"text": "info:said"}),
    ({"fails": "no\nway"}, {}),
    ({"fails": "no"}, {"text": "tests.gym_toys:praise"}),
    ({"fails": "no"}, {"fields": ("frame",)}),
    ({}, {"text": "tests.toys:Corridor"}),
    ({}, {"text": "tests.gym_toys:no_text"}),
    ({}, {"modules": "no_such_module"}),
]


def test_what_cannot_be_taken_is_one_line(record):
    said = {"unknown": told(registry.check, "gym:Nope-v1", {})}
    for number, (given, options) in enumerate(ODD):
        said[f"{number}"] = told(registry.check, odd(**given), options)
    assert_matches_packed_recording("gym_refusals", said, record)
    registry.check(odd(info=[{}] * 199 + [{"said": "a"}]), {"text": "info:said", "text_bytes": 256})
    assert registry.spec(odd(space=spaces.Discrete(4096))).observation["observation"].shape == (4096,)


def test_modules_that_data_names_are_not_imported(monkeypatch):
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    for name, options, asked in (
        (VAULT, TOYS, "tests.gym_toys"),
        ("gym:tests.gym_toys:ToyVault-v0", {}, "tests.gym_toys"),
        ("gym:CartPole-v1", {"text": "tests.gym_toys:praise"}, "tests.gym_toys:praise"),
    ):
        registry_of_specs.cache_clear()
        with pytest.raises(UserError, match=f"--config.trust={asked}"):
            registry.spec(name, **options)
    entry_points.trust(entry_points.named({"name": "gym:tests.gym_toys:ToyVault-v0"}))
    assert registry.spec("gym:tests.gym_toys:ToyVault-v0").num_actions == 3
