"""Which tests of generalisation there are for whom, and where they are played."""

from __future__ import annotations

from motif_jax.envs import registry
from motif_jax.envs.babyai_text import changes
from motif_jax.rollouts.generalisation import (
    BASE,
    CHOOSES_WORDS,
    READS,
    PlayedLevel,
    chosen,
    every,
    language,
    place_of,
)
from tests.recorded_outputs import compared
from tests.rollouts.told import said

MIXED = PlayedLevel("BabyAI-MixedTrainLocal-v0", {"kind": ""})
BOTH = frozenset({READS, CHOOSES_WORDS})


def test_an_agent_takes_every_published_test_once_in_its_place():
    """What it was trained with, six actions and eight distractors, is the first test."""
    found = {test.name: place_of(test, MIXED) for test in chosen(("all",), MIXED, BOTH)}
    words = [name for name in changes.CHANGES if name != BASE] + ["other_mission", "other_episode"]
    sequences = "PickUpSeqGoToLocal PickUpThenGoToLocal GoToAfterPickUpLocal PickUpSeqPickUpLocal".split()
    others = "action_names action_names_shift actions_3 actions_9 distractors_4 distractors_16 unseen_pairs".split()
    assert list(found) == [BASE, *words, *others, *sequences, "french"]
    level = {"unseen_pairs": "BabyAI-MixedTestLocal-v0", **{each: f"BabyAI-{each}-v0" for each in sequences}}
    for name, place in found.items():
        spec = registry.spec(place.environment, **place.options)
        assert spec.num_actions == {"actions_3": 3, "actions_9": 9}.get(name, 6)
        assert place.environment == level.get(name, MIXED.environment)
        assert place.options.get("change") == (name if name in words else None)
        assert place.options.get("distractors") == {"distractors_4": 4, "distractors_16": 16}.get(name)
    assert found["action_names_shift"].options["actions"][2] == "go ahead"


BASES = {
    "mixed": MIXED, "four": PlayedLevel("BabyAI-GoToLocal-v0", {"distractors": 4, "actions": ("a", "b", "c")}),
    "none": PlayedLevel("BabyAI-GoToLocal-v0", {"distractors": 0}), "room": PlayedLevel("BabyAI-GoToObj-v0", {}),
    "french": PlayedLevel("BabyAI-GoToFrench-v0", {"language": ""}),
    "prompts": PlayedLevel("BabyAI-GoToLocal-v0", {"tokenizer": "a file", "prompt_tokens": 100}),
}  # fmt: skip
NAMES = (
    "all",
    "french",
    "danish",
    "BabyAI-GoToFrench-v0",
    "BabyAI-GoToLocal-v0",
    "unseen_pairs",
    "action_names",
)


def test_tests_and_their_places_are_those_that_were_recorded(record: bool) -> None:
    """Where another number holds in training it is not tested; words mean nothing to who does not read; other words take more room."""
    parts = {}
    for name, base in BASES.items():
        for able in ([READS, CHOOSES_WORDS], [CHOOSES_WORDS], []):
            for asked in NAMES:
                names = said(
                    lambda *given: [test.name for test in chosen(*given)], (asked,), base, frozenset(able)
                )
                parts[f"{name} {able} {asked}"] = names
        for tokens, room in ((None, None), (None, 150), (130, None)):
            for own in ((), ("left", "right", "on")):
                places = {test.name: place_of(test, base, tokens, room) for test in every(base, own).values()}
                shown = [f"{test} {place} {language(place)}" for test, place in places.items()]
                parts[f"{name} {tokens} {room} {own}"] = "\n".join(shown)
    compared("generalisation", parts, record)
