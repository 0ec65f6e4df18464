"""Which tests of generalisation apply to a player, and where each is played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs.babyai_text.prompt_lengths import TRIED_EPISODES
from motif_jax.envs.spec import RUNNING, ArraySpec, EnvironmentSpec
from motif_jax.glam.generalisation import (
    BASE,
    CHOOSES_WORDS,
    READS,
    PlayedLevel,
    chosen,
    every,
    language,
    level_of_test,
    require_room,
)

LOCAL = "BabyAI-GoToLocal-v0"
PLAIN = PlayedLevel("BabyAI-MixedTrainLocal-v0", {"kind": ""})
FRENCH = PlayedLevel("BabyAI-GoToFrench-v0", {"language": ""})
TOKENS = PlayedLevel(LOCAL, {"tokenizer": "a file", "prompt_tokens": 100})
ALL_ABILITIES = frozenset({READS, CHOOSES_WORDS})


def names_of(
    names: str, base: PlayedLevel = PLAIN, abilities: frozenset[str] = ALL_ABILITIES
) -> list[str]:
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


@pytest.mark.parametrize(
    ("level", "is_held_out"),
    [("BabyAI-MixedTrainLocal-v0", True), ("BabyAI-PickUpSeqGoToLocal-v0", True), (LOCAL, False)],
)
def test_pairs_are_called_unseen_only_where_the_training_excludes_them(
    level: str, is_held_out: bool
) -> None:
    test = every(PlayedLevel(level, {}))["unseen_pairs"]

    assert test.level == "BabyAI-MixedTestLocal-v0"
    assert ("no training mission" in test.description) == is_held_out
    assert ("may have named" in test.description) != is_held_out


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
        "its objects cannot be chosen"
    )


def test_a_place_replaces_the_options_of_its_test_alone() -> None:
    base = PlayedLevel(LOCAL, {"distractors": 4})

    played_level = level_of_test(every(base)["french"], base)

    assert played_level == PlayedLevel(LOCAL, {"distractors": 4, "language": "french"})
    assert language(played_level) == "french"


@pytest.mark.parametrize(
    ("name", "prompt_tokens", "room", "expected"),
    [
        # Other words may take twice the tokens, as far as there is room; the same words take the
        # same.
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


class GrowingPrompt:
    """A prompt that gains a token with every step; the episode of seed 100 begins with 20 more."""

    def __init__(self, name: str, **options: Any) -> None:
        self.spec = self.make_spec(name, **options)
        self._length = 0

    @staticmethod
    def make_spec(name: str, tokenizer: str = "", prompt_tokens: int = 0) -> EnvironmentSpec:
        return EnvironmentSpec({"tokens": ArraySpec((prompt_tokens,), "int32")}, 2)

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self._length = 21 if seed == 100 else 1
        self._write(out)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        self._length += 1
        self._write(out)
        return 0.0, RUNNING

    def episode_info(self) -> dict[str, float]:
        return {"return": 0.0, "length": 0.0}

    def close(self) -> None:
        pass

    def _write(self, out: Mapping[str, np.ndarray]) -> None:
        out["tokens"][...] = -1
        out["tokens"][: self._length] = 3


def growing(prompt_tokens: int, monkeypatch: pytest.MonkeyPatch) -> PlayedLevel:
    name = f"{__name__}:GrowingPrompt"
    monkeypatch.setenv("MOTIF_JAX_TRUST", name)
    return PlayedLevel(name, {"tokenizer": "a file", "prompt_tokens": prompt_tokens})


def test_prompts_of_the_first_eight_steps_need_room(monkeypatch: pytest.MonkeyPatch) -> None:
    test = every(PLAIN)["french"]

    require_room(test, growing(9, monkeypatch), [1, 2])

    with pytest.raises(
        UserError, match=r"^config\.room: a prompt of the test french has 9 tokens, and 8 are"
    ):
        require_room(test, growing(8, monkeypatch), [1, 2], "room")


def test_prompts_of_the_first_episodes_need_room(monkeypatch: pytest.MonkeyPatch) -> None:
    test = every(PLAIN)["french"]
    seeds_before = list(range(TRIED_EPISODES - 1))

    require_room(test, growing(9, monkeypatch), [*seeds_before, 0, 100])

    with pytest.raises(UserError, match="has 29 tokens, and 9 are allowed"):
        require_room(test, growing(9, monkeypatch), [*seeds_before, 100])


def test_a_level_without_tokens_has_room() -> None:
    require_room(every(PLAIN)["french"], PlayedLevel("nowhere", {}), [1])
