"""Which tests of generalisation there are for whom, and where they are played."""

from __future__ import annotations

import pytest

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
from motif_jax.support.errors import UserError

MIXED = PlayedLevel("BabyAI-MixedTrainLocal-v0", {"kind": ""})
BOTH = frozenset({READS, CHOOSES_WORDS})


def names(base, abilities, *wanted):
    return [test.name for test in chosen(wanted or ("all",), base, abilities)]


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


def test_where_another_number_holds_in_training_that_number_is_not_tested():
    base = PlayedLevel("BabyAI-GoToLocal-v0", {"distractors": 4, "actions": ("a", "b", "c")})
    found = names(base, BOTH)
    # Six names of actions are too many for three.
    wanted = {"distractors_4", "distractors_8", "actions_3", "actions_6", "action_names"}
    assert wanted & set(found) == {"distractors_8", "actions_6"}
    assert "french" not in names(PlayedLevel("BabyAI-GoToFrench-v0", {}), BOTH)
    assert "distractors_8" in names(PlayedLevel("BabyAI-GoToLocal-v0", {"distractors": 0}), BOTH)
    own = chosen(("action_names",), base, BOTH, ("left", "right", "on"))[1]
    assert place_of(own, base).options["actions"] == ["left", "right", "on"]


def test_an_agent_that_reads_french_is_tested_in_french():
    base = PlayedLevel("BabyAI-GoToFrench-v0", {"language": ""})
    for name in ("no_modification_test", "unseen_pairs", "PickUpThenGoToLocal", "BabyAI-GoToObj-v0"):
        test = chosen((name,), base, BOTH)[-1]
        assert language(place_of(test, base)) == "french"
    level = chosen(("BabyAI-GoToFrench-v0",), MIXED, BOTH)[-1]
    assert language(place_of(level, MIXED)) == "french"
    assert "language" not in place_of(every(MIXED)["unseen_pairs"], MIXED).options


def test_words_mean_nothing_to_those_who_do_not_read():
    for abilities in (frozenset(), frozenset({CHOOSES_WORDS})):
        found = set(names(MIXED, abilities))
        assert not found & ({"french", "action_names"} | set(changes.CHANGES) - {BASE})
        assert ("actions_3" in found) == (CHOOSES_WORDS in abilities)
    with pytest.raises(UserError, match=r"config.tests='french': must be without french, .*reads the prompt"):
        names(MIXED, frozenset(), "french")
    with pytest.raises(UserError, match=r"config.tests='danish': must be 'all', or names of no_modification"):
        names(MIXED, BOTH, "danish")


def test_prompts_of_other_words_get_more_room():
    base = PlayedLevel("BabyAI-GoToLocal-v0", {"tokenizer": "a file", "prompt_tokens": 100})
    tests = every(base)

    def room(name, **limits):
        return place_of(tests[name], base, **limits).options["prompt_tokens"]

    assert (room(BASE), room("adj_synonym"), room("adj_synonym", room=150)) == (100, 200, 150)
    assert room("adj_synonym", prompt_tokens=130) == 130
