from __future__ import annotations

from motif_jax.glam.generalisation import (
    CHOOSES_WORDS,
    READS,
    PlayedLevel,
    chosen,
    every,
    language,
    level_of_test,
)
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

BASES = {
    "mixed": PlayedLevel("BabyAI-MixedTrainLocal-v0", {"kind": ""}),
    "four": PlayedLevel("BabyAI-GoToLocal-v0", {"distractors": 4, "actions": ("a", "b", "c")}),
    "none": PlayedLevel("BabyAI-GoToLocal-v0", {"distractors": 0}),
    "room": PlayedLevel("BabyAI-GoToObj-v0", {}),
    "french": PlayedLevel("BabyAI-GoToFrench-v0", {"language": ""}),
    "prompts": PlayedLevel("BabyAI-GoToLocal-v0", {"tokenizer": "a file", "prompt_tokens": 100}),
}
NAMES = "all french danish BabyAI-GoToFrench-v0 BabyAI-GoToLocal-v0 unseen_pairs action_names".split()


def test_tests_and_their_places_are_those_that_were_recorded(record: bool) -> None:
    """Where another number holds in training it is not tested; words mean nothing to who does not read; other words take more room."""
    parts = {}
    for name, base in BASES.items():
        for able in ([READS, CHOOSES_WORDS], [CHOOSES_WORDS], []):
            for asked in NAMES:
                found = outcome_text(
                    lambda *given: [each.name for each in chosen(*given)], (asked,), base, {*able}
                )
                parts[f"{name} {able} {asked}"] = found
        for tokens, room in ((None, None), (None, 150), (130, None)):
            for own in ((), ("left", "right", "on")):
                places = {
                    test.name: level_of_test(test, base, tokens, room) for test in every(base, own).values()
                }
                shown = [f"{test} {place} {language(place)}" for test, place in places.items()]
                parts[f"{name} {tokens} {room} {own}"] = "\n".join(shown)
    assert_matches_packed_recording("generalisation", parts, record)
