"""Which tests of generalisation apply to a player, and where each is played."""

from __future__ import annotations

import pytest

from motif_jax.core.errors import UserError
from motif_jax.glam.generalisation import (
    BASE,
    CHOOSES_WORDS,
    READS,
    PlayedLevel,
    chosen,
    every,
    language,
    level_of_test,
)

LOCAL = "BabyAI-GoToLocal-v0"
PLAIN = PlayedLevel("BabyAI-MixedTrainLocal-v0", {"kind": ""})
FRENCH = PlayedLevel("BabyAI-GoToFrench-v0", {"language": ""})
TOKENS = PlayedLevel(LOCAL, {"tokenizer": "a file", "prompt_tokens": 100})
ALL_ABILITIES = frozenset({READS, CHOOSES_WORDS})


def names_of(names: str, base: PlayedLevel = PLAIN, abilities: frozenset[str] = ALL_ABILITIES) -> list[str]:
    return [test.name for test in chosen(names.split(","), base, abilities)]


def test_all_stands_for_every_test_that_applies() -> None:
    assert names_of("all") == list(every(PLAIN))
    assert names_of("all")[0] == BASE


@pytest.mark.parametrize("abilities", [frozenset[str](), frozenset({CHOOSES_WORDS})])
def test_who_does_not_read_is_not_tested_in_other_words(abilities: frozenset[str]) -> None:
    names = names_of("all", abilities=abilities)

    assert all(every(PLAIN)[name].needs <= abilities for name in names)
    assert "french" not in names
    with pytest.raises(
        UserError, match=r"^config\.tests='french': must be without french, .* this: reads the"
    ):
        names_of("french", abilities=abilities)


def test_the_base_is_played_before_any_test_and_once() -> None:
    assert names_of("unseen_pairs") == [BASE, "unseen_pairs"]
    assert names_of(f"unseen_pairs,{BASE},unseen_pairs") == [BASE, "unseen_pairs"]


def test_a_level_may_be_named_as_a_test() -> None:
    assert names_of("BabyAI-GoToLocal-v0") == [BASE, "BabyAI-GoToLocal-v0"]


@pytest.mark.parametrize("name", ["danish", "BabyAI-Nowhere-v0"])
def test_an_unknown_test_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(UserError, match=rf"^config\.tests='{name}': must be 'all', or names of .*french"):
        names_of(name)


def test_an_agent_of_french_is_not_tested_in_french() -> None:
    assert "french" not in every(FRENCH)
    assert language(FRENCH) == "french"
    assert language(level_of_test(every(FRENCH)["unseen_pairs"], FRENCH)) == "french"


def test_the_number_of_distractors_of_the_training_is_no_test() -> None:
    four = PlayedLevel(LOCAL, {"distractors": 4})
    none = PlayedLevel(LOCAL, {"distractors": 0})
    room = PlayedLevel("BabyAI-GoToObj-v0", {})

    assert "distractors_4" not in every(four)
    assert "distractors_4" in every(none)
    assert not any(name.startswith("distractors") for name in every(room)), (
        "its objects are no matter of choice"
    )


def test_names_of_actions_must_be_as_many_as_the_actions() -> None:
    three = PlayedLevel(LOCAL, {"actions": ("a", "b", "c")})

    assert every(three, ("left", "right", "on"))["action_names"].options == {
        "actions": ["left", "right", "on"]
    }
    assert "action_names" not in every(three)
    assert "action_names" not in every(PLAIN, ("left", "right", "on"))


def test_a_place_replaces_the_options_of_its_test_alone() -> None:
    base = PlayedLevel(LOCAL, {"distractors": 4})

    played_level = level_of_test(every(base)["french"], base)

    assert played_level == PlayedLevel(LOCAL, {"distractors": 4, "language": "french"})
    assert language(played_level) == "french"


@pytest.mark.parametrize(
    ("name", "prompt_tokens", "room", "expected"),
    [
        # Other words may take twice the tokens, as far as there is room; the same words take the same.
        (BASE, None, None, 100),
        ("no_meaning_nouns", None, None, 200),
        ("no_meaning_nouns", None, 150, 150),
        ("no_meaning_nouns", 130, None, 130),
        ("no_meaning_nouns", None, 50, 100),
    ],
)
def test_other_words_have_room_for_more_tokens(
    name: str, prompt_tokens: int | None, room: int | None, expected: int
) -> None:
    played_level = level_of_test(every(TOKENS)[name], TOKENS, prompt_tokens, room)

    assert played_level.options["prompt_tokens"] == expected
