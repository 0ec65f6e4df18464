from __future__ import annotations

from tests.envs.playing import shown
from tests.recorded_outputs import assert_matches_packed_recording


def test_only_the_cue_named_at_the_question_is_rewarded(record):
    cases = {}, {"cues": 3, "delay": 2}, {"delay": 200}, {"delay": 4, "max_episode_steps": 3}
    played = {str(options): shown("Recall-v0", 101, range(6), **options) for options in cases}
    assert all(end in str(played) for end in ("(1.0, 1) {", "(0.0, 1) {", "(0.0, 2) {"))
    assert_matches_packed_recording("recall", played, record)
