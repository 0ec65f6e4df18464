"""Where a gymnasium environment's captions come from, and which bytes they become."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.gym_task import captions
from tests.envs.playing import started

TOYS = {"modules": "tests.gym_toys"}


def test_texts_of_functions_and_classes_and_what_is_cut():
    environment, out = started(
        "gym:ToyChatter-v0", **TOYS, text="tests.gym_toys:praise", text_bytes=20
    )
    assert decoded(out["caption"]) == ""
    for _ in range(2):
        environment.step(1, out)
    assert decoded(out["caption"]) == "action 1 " + "é" * 5, "a cut falls between letters"
    assert environment.episode_info()["captions_cut"] == 2
    one, out = started("gym:ToyChatter-v0", **TOYS, text="tests.gym_toys:Counting")
    _, out_of_other = started("gym:ToyChatter-v0", **TOYS, text="tests.gym_toys:Counting")
    one.step(0, out)
    assert (decoded(out["caption"]), decoded(out_of_other["caption"])) == ("step 1", "step 0")


def test_texts_are_utf8_up_to_their_first_zero():
    texts = {
        None: b"",
        "a\0b": b"a b",
        "ł": "ł".encode(),
        b"ab\0c": b"ab",
        "T\u00fcr".encode(): "Tür".encode(),
    }
    assert {text: captions.text_bytes_of(text) for text in texts} == texts
    assert captions.text_bytes_of(np.array([65, 0, 66], np.uint8)) == b"A"
    with pytest.raises(TypeError, match="expected a text, got list"):
        captions.text_bytes_of(["a"])


def test_texts_come_from_info_or_a_nested_observation():
    of_info = captions.make("info:said")
    of_nested = captions.make("obs:me.said")

    assert of_info(captions.CaptionedStep({"said": "no"}, {"said": "yes"}, None)) == "yes"
    assert (
        of_nested(captions.CaptionedStep({"me": {"said": "here"}}, {"me": {"said": "no"}}, None))
        == "here"
    )
    assert of_nested(captions.CaptionedStep({"me": "no"}, {}, None)) is None


@pytest.mark.parametrize(
    ("source", "observation"),
    [
        ("obs:1", (3, "here")),
        ("obs:1.said", (3, {"said": "here"})),
        ("obs:me.said", {"me.said": "here"}),
        ("obs:me.said", {"me": {"other": "no"}, "me.said": "here"}),
        ("obs:a.b.c", {"a": {"no": "no"}, "a.b": {"c": "here"}}),
    ],
)
def test_texts_come_from_tuple_elements_and_dotted_keys(source: str, observation: object) -> None:
    step = captions.CaptionedStep(observation, {}, None)

    assert captions.make(source)(step) == "here"


def test_a_single_observation_is_called_observation() -> None:
    for source, observation, text in [
        ("obs:observation", "here", "here"),
        ("obs:observation", {"observation": "there"}, "there"),
        ("obs:other", "here", None),
    ]:
        assert captions.make(source)(captions.CaptionedStep(observation, {}, None)) == text


def tell_with_defaults(obs, info=None, reward=0.0, environment=None):
    return f"{obs} {info} {reward} {environment}"


def tell_four(seen, facts, world, deed, reward=0.0):
    return f"{seen} {facts} {world} {deed} {reward}"


@pytest.mark.parametrize(
    ("function", "text"),
    [(tell_with_defaults, "o {'i': 1} 2.0 e"), (tell_four, "o {'i': 1} e 3 2.0")],
)
def test_arguments_with_defaults_are_given_by_name(function, text) -> None:
    step = captions.CaptionedStep("o", {"i": 1}, "e", 3, 2.0)

    assert captions.of_function(function, "text=")(step) == text


def test_a_class_takes_what_its_objects_take() -> None:
    class Observer:
        def __call__(self, observations):
            return ""

    class Neighbour:
        def __call__(self, info, environment):
            return ""

    for taken in (Observer, Observer()):
        assert captions.takes_observation_alone(taken)
    for taken in (Neighbour, Neighbour()):
        assert captions.names(taken, "environment")
        assert not captions.takes_observation_alone(taken)


def test_a_text_that_is_not_there_is_none() -> None:
    of_part = captions.make("obs:2.said")

    assert of_part(captions.CaptionedStep((3, {"said": "no"}), {}, None)) is None


def test_a_function_with_further_arguments_takes_single_steps() -> None:
    """In a vector of environments, too: the whole batch has no info of one step."""
    assert not captions.takes_observation_alone(tell_with_defaults)
    assert captions.names(tell_with_defaults, "environment")
    assert not captions.names(lambda seen: "", "environment")
