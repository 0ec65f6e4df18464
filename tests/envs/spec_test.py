from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec, Row, empty_observation, row
from tests.envs.playing import error_line, installed_names

TEXT = ArraySpec((4,), "uint8")
MASK = ArraySpec((2,), "uint8")


def made(actions: int = 2, **options: Any) -> EnvironmentSpec:
    return EnvironmentSpec({"text": TEXT, "mask": MASK}, actions, **options)


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"text_field": "words"}, r"'words' is not among the observation fields \['mask', 'text'\]"),
    ({"count_field": "text", "mask_field": "m"}, "'m' is not among the observation fields"),
    ({"expert_field": "text"}, "'text' is not among the optional fields"),
    ({"mask_field": "text"}, r"the mask 'text' must be uint8 \[2\], one entry for each action"),
    ({"action_names": ("one",)}, "action_names must be 2, one for each action"),
    ({"action_keys": (1, 2, 3)}, "action_keys must be 2, one for each action"),
)


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_a_spec_that_contradicts_itself_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**options)


@pytest.mark.parametrize(
    ("num_actions", "options", "message"),
    [
        (0, {}, "one of num_actions and action_size must be above 0"),
        (3, {"action_size": 2}, "one of num_actions and action_size must be above 0"),
        (3, {"action_size": -1}, "one of num_actions and action_size must be above 0"),
        (
            0,
            {"action_size": 2, "mask_field": "mask"},
            "real numbers have no mask, no expert, no names and no keys",
        ),
        (0, {"action_size": 2, "action_names": ("left", "right")}, "real numbers have no mask"),
    ],
)
def test_actions_are_numbered_or_real(
    num_actions: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        made(num_actions, **options)


def test_a_continuous_action_has_size_bounds_and_label() -> None:
    spec = made(0, action_size=6)

    spec.check_action([0.0, 1, -1.0, 0.5, 0.5, 0.5])

    for action in ([0.0] * 5, [0.0] * 5 + [1.01], [0.0] * 5 + [float("nan")], ["1"] * 6, 3, None):
        assert "is not 6 numbers from -1 to 1" in error_line(spec.check_action, action)
    assert spec.action_label([-0.001, 0.5, 1.0, -1.0, 0.3, 0.3]) == "0.00, 0.50, 1.00, -1.00, …"
    assert not spec.fits(made(0, action_size=5))
    assert not spec.fits(made())


def test_an_agent_fits_where_its_fields_and_actions_are() -> None:
    here = made()
    trained = EnvironmentSpec({"text": TEXT}, 2)
    assert here.fits(trained)
    masks = EnvironmentSpec({"text": MASK, "mask": MASK}, 2)
    for other in (trained, made(3), made(mask_field="mask"), masks):
        assert not other.fits(here)
    assert (here.action_names, here.action_keys) == (("action 0", "action 1"), (0, 0))
    here.check_action(0)
    here.check_action(np.int64(1))
    for action in (-1, 2, 0.7, True, "1", None):
        assert f"action {action} is not one of 0 .. 1" in error_line(here.check_action, action)


def test_a_row_is_a_view_whose_arrays_stay() -> None:
    arrays = empty_observation(made(), (3, 2))
    one = row(arrays, 2, 1)
    one["text"][...] = 7
    assert (arrays["text"].shape, arrays["text"].sum()) == ((3, 2, 4), 28)
    assert arrays["text"][2, 1].tolist() == [7] * 4
    assert one.handles is None
    with pytest.raises(TypeError):
        one["text"] = np.zeros(4, np.uint8)
    assert type(empty_observation(made())) is Row


LEVEL = {
    "observations": 4,
    "fields": ("prompt", "grid"),
    "actions": ("go", "stop"),
    "max_episode_steps": 9,
}
KEPT = {"compat": {"glam_fixed_kind_per_env": True}}
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {} for name in installed_names() if name[:8] not in ("MiniHack", "MiniGrid")},
    **{
        name: {}
        for name in (
            "MiniHack-Room-5x5-v0",
            "MiniGrid-DoorKey-5x5-v0",
            "BabyAI-GoTo-v0",
            "gym:CartPole-v1",
        )
    },
    "NetHackScore-v1": {"fields": ("tty_colors", "glyphs"), "max_episode_steps": 1},
    "BabyAI-GoToLocal2-v0": KEPT,
    "BabyAI-MixedTestLocal-v0": {**LEVEL, **KEPT},
    "BabyAI-MixedTrainLocal-v0": {"kind": "open", **KEPT},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_spec_equals_that_of_its_environment(name: str) -> None:
    options = OPTIONS[name]
    spec = registry.spec(name, **options)
    env = registry.make(name, **options)

    assert env.spec == spec
    assert len(spec.action_names) == len(spec.action_keys) == spec.num_actions
    shown = set(options.get("fields", ()))
    assert shown <= set(spec.observation)
    assert spec.text_field is None or spec.text_field in spec.observation
    env.close()


def test_limits_and_actions_of_options_are_those_of_the_spec() -> None:
    spec = registry.spec("BabyAI-MixedTestLocal-v0", **LEVEL)

    assert spec.action_names == ("go", "stop")
    assert spec.num_actions == 2
    assert {"prompt", "grid"} <= set(spec.observation)
    assert {"tty_colors", "glyphs"} <= set(
        registry.spec("NetHackScore-v1", **OPTIONS["NetHackScore-v1"]).observation
    )
