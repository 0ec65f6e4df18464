from __future__ import annotations

from pathlib import Path

import numpy as np

from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.tasks.contract import interact
from motif_jax.ilql.tasks.wordle.task import Wordle
from tests.recorded_outputs import assert_matches_packed_recording

POLICIES = (
    "fitting",
    "random",
    "random_mixture(0.4, 'start_words')",
    "start",
    "optimal",
    "optimal(start)",
    "optimal(mixture(0.5, start('tweet_words'), wrong('tweet_words')))",
    "optimal(None)",
    "repeat(None, 2)",
    "repeat(start)",
    "wrong",
    "wrong('tweet_words')",
    "mixture(0.3, optimal, repeat)",
    "monte_carlo(4, mixture(1, random, wrong))",
)


def test_an_episode_says_whether_it_was_won_and_what_was_guessed_again():
    texts = tuple(text for guess in "ababaa" for text in (guess, "colours"))
    outcome = Wordle({"num_words": 60}).outcome(Dialogue(texts, (-1.0, None) * 6, True))
    assert outcome == {"success": 0, "repeated_guesses": 4}


def written(dialogues):
    return "\n".join(f"{one.texts} {one.rewards} {one.terminal} {one.meta}" for one in dialogues)


def test_policies_and_streams_say_what_was_recorded(tmp_path, record):
    task, parts = Wordle({"num_words": 60}), {}
    for policy in POLICIES:
        parts[policy] = written(task.stream("games", policy)(np.random.default_rng(1), 30, 0))
        rng, player, world = np.random.default_rng(2), task.policy(policy), task.environment()
        ends = [interact(world, player, rng).observation for _ in range(5)]
        # What the policy does not know, or is no word, leaves it its turn.
        now = world.reset(rng)
        for said in ("zzzzz", "no", ends[0].guesses[0]):
            now = world.step(said).observation
        ends.append(interact(world, player, rng, now).observation)
        parts[f"{policy} in turns"] = written(end.to_sequence() for end in ends)
    for kind in ("branch", "adversarial"):
        for restarts in (False, True):
            options = {"num_suboptimal": 2, "num_adversarial": 3, "branch_restarts": restarts}
            stream = Wordle({"num_words": 60, **options}).stream(kind, "optimal")
            parts[f"{kind} {restarts}"] = written(stream(np.random.default_rng(5), 9, 100))
    told = Wordle({"simulated": 200, "words": "wordle_official"})
    for policy in ("optimal", "random_mixture(0.7, 'tweet_words')"):
        (tmp_path / policy).mkdir()
        tweets = told.prepare("tweets", policy, tmp_path / policy)["tweets"]
        parts[f"tweets of {policy}"] = Path(tweets).read_text()
    assert_matches_packed_recording("wordle_games", parts, record)
