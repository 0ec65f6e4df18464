"""Streams to learn from: branches continue with the expert's game, and start again with the published switch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from motif_jax.datasets.dialogues.dialogue import Dialogue
from motif_jax.envs.text.contract import interact
from motif_jax.envs.wordle.colours import CODES
from motif_jax.envs.wordle.task import Wordle
from tests.recorded_outputs import compared

POLICIES = (
    "fitting", "random", "random_mixture(0.4, 'start_words')", "start", "optimal", "optimal(start)",
    "optimal(mixture(0.5, start('tweet_words'), wrong('tweet_words')))", "optimal(None)", "repeat(None, 2)",
    "repeat(start)", "wrong", "wrong('tweet_words')", "mixture(0.3, optimal, repeat)", "monte_carlo(4, mixture(1, random, wrong))",
)  # fmt: skip


def test_an_episode_says_whether_it_was_won_and_what_was_guessed_again():
    texts = tuple(text for guess in "ababaa" for text in (guess, "colours"))
    outcome = Wordle({"num_words": 60}).outcome(Dialogue(texts, (-1.0, None) * 6, True))
    assert outcome == {"success": 0, "repeated_guesses": 4}


def drawn(kind, count=60, **options):
    task = Wordle({"num_words": 60, **options})
    return task.stream(kind, "optimal")(np.random.default_rng(5), count, 100)


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
            parts[f"{kind} {restarts}"] = written(drawn(kind, 9, **options))
    told = Wordle({"simulated": 200, "words": "wordle_official"})
    for policy in ("optimal", "random_mixture(0.7, 'tweet_words')"):
        (tmp_path / policy).mkdir()
        parts[f"tweets of {policy}"] = Path(
            told.prepare("tweets", policy, tmp_path / policy)["tweets"]
        ).read_text()
    compared("wordle_games", parts, record)


def groups(dialogues):
    """Group -> (the expert's game, the others)."""
    found = {}
    for dialogue in dialogues:
        found.setdefault(dialogue.meta["group"], []).append(dialogue)
    assert list(found) == list(range(100, 100 + len(found)))
    for expert, *others in found.values():
        assert expert.meta["kind"] == "expert"
        yield expert, others


def guesses(dialogue):
    return dialogue.texts[::2]


def continues(expert, branch):
    """Whether a branch begins with the expert's game up to where it leaves it."""
    return branch.texts[: 2 * branch.meta["start"]] == expert.texts[: 2 * branch.meta["start"]]


def test_games_are_a_function_of_the_seed():
    task = Wordle({})
    first, again = (task.stream("games", "fitting")(np.random.default_rng(9), 50, 0) for _ in range(2))
    assert list(first) == list(again)
    assert list(first) != list(task.stream("games", "fitting")(np.random.default_rng(8), 50, 0))
    for dialogue in first:
        assert dialogue.terminal
        assert dialogue.rewards[:-2:2] == (-1.0,) * (len(dialogue.texts) // 2 - 1)
        won = dialogue.rewards[-2] == 0
        assert won == (CODES[dialogue.texts[-1]] == 242) or len(dialogue.texts) == 12
        assert dialogue.rewards[1::2] == (None,) * (len(dialogue.texts) // 2)


def test_branches_continue_the_experts_game():
    for expert, others in groups(drawn("branch", num_suboptimal=2)):
        starts = np.repeat(range(len(guesses(expert))), 2)
        assert [branch.meta["start"] for branch in others] == starts.tolist()
        for branch in others:
            assert branch.meta["kind"] == "branch_suboptimal"
            assert branch.terminal
            assert continues(expert, branch)
            assert branch.total == -sum(r == -1 for r in branch.rewards)
            assert len(guesses(branch)) <= 6


def test_published_branches_start_on_an_empty_board():
    pairs = [
        (expert, branch)
        for expert, others in groups(drawn("branch", branch_restarts=True))
        for branch in others
        if branch.meta["start"]
    ]
    assert not any(continues(expert, branch) for expert, branch in pairs if branch.meta["start"] > 1)
    assert np.mean([continues(expert, branch) for expert, branch in pairs]) < 0.2


def test_adversaries_leave_at_the_third_guess():
    dialogues = drawn("adversarial", 300, num_words=0, num_suboptimal=3, num_adversarial=4)
    long = 0
    for expert, others in groups(dialogues):
        kinds = [other.meta["kind"] for other in others]
        leaves = len(guesses(expert)) > 3
        long += leaves
        assert kinds == ["adversarial"] * 4 * leaves + ["suboptimal"] * 3
        for other in others:
            assert other.meta["start"] == (2 if other.meta["kind"] == "adversarial" else 0)
            assert continues(expert, other)
    assert long
