from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec, Row, empty_observation, row
from tests.envs.playing import told
from tests.recorded_outputs import assert_matches_packed_recording

TEXT, MASK = ArraySpec((4,), "uint8"), ArraySpec((2,), "uint8")


def made(actions: int = 2, **options: Any) -> EnvironmentSpec:
    return EnvironmentSpec({"text": TEXT, "mask": MASK}, actions, **options)


REFUSED: tuple[dict[str, Any], ...] = (
    {"text_field": "words"},
    {"count_field": "text", "mask_field": "m"},
    {"expert_field": "text"},
    {"mask_field": "text"},
    {"action_names": ("one",)},
    {"action_keys": (1, 2, 3)},
)


def test_a_spec_that_contradicts_itself_is_refused(record: bool) -> None:
    assert_matches_packed_recording(
        "specs_refused", {str(options): told(made, **options) for options in REFUSED}, record
    )


def test_an_agent_fits_where_its_fields_and_actions_are() -> None:
    here, trained = made(), EnvironmentSpec({"text": TEXT}, 2)
    assert here.fits(trained)
    masks = EnvironmentSpec({"text": MASK, "mask": MASK}, 2)
    for other in (trained, made(3), made(mask_field="mask"), masks):
        assert not other.fits(here)
    assert (here.action_names, here.action_keys) == (("action 0", "action 1"), (0, 0))
    here.check_action(0)
    here.check_action(1)
    for action in (-1, 2):
        assert f"action {action} is not one of 0 .. 1" in told(here.check_action, action)


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


LEVEL = {"observations": 4, "fields": ("prompt", "grid"), "actions": ("go", "stop"), "max_episode_steps": 9}
KEPT = {"compat": {"glam_fixed_kind_per_env": True}}
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {} for name in registry.names() if name[:8] not in ("MiniHack", "MiniGrid")},
    **{
        name: {}
        for name in ("MiniHack-Room-5x5-v0", "MiniGrid-DoorKey-5x5-v0", "BabyAI-GoTo-v0", "gym:CartPole-v1")
    },
    "NetHackScore-v1": {"fields": ("tty_colors", "glyphs"), "max_episode_steps": 1},
    "BabyAI-GoToLocal2-v0": KEPT,
    "BabyAI-MixedTestLocal-v0": {**LEVEL, **KEPT},
    "BabyAI-MixedTrainLocal-v0": {"kind": "open", **KEPT},
}


def test_environments_have_the_specs_that_were_recorded(record: bool) -> None:
    # What a machine cannot do is remarked.
    specs = {name: dataclasses.replace(registry.spec(name, **OPTIONS[name]), remark="") for name in OPTIONS}
    assert_matches_packed_recording("specs", {name: str(spec) for name, spec in specs.items()}, record)
