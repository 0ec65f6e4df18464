from __future__ import annotations

import collections

import numpy as np
import pytest

from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.tasks.wordle.environment import WordleObservation
from motif_jax.ilql.tasks.wordle.game import CODES
from motif_jax.ilql.tasks.wordle.task import Wordle

GAMES = 9
FIRST_GROUP = 100


def draw(kind: str, games: int = GAMES, **options: object) -> Dialogues:
    """Games of an expert and those that leave it."""
    task = Wordle({"num_words": 60, "num_suboptimal": 2, "num_adversarial": 3, **options})
    return task.stream(kind, "optimal")(np.random.default_rng(5), games, FIRST_GROUP)


def grouped(dialogues: Dialogues) -> dict[int, dict[str, list[Dialogue]]]:
    """Group -> kind of game -> its games, in order."""
    groups: dict[int, dict[str, list[Dialogue]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for dialogue in dialogues:
        groups[dialogue.meta["group"]][dialogue.meta["kind"]].append(dialogue)
    return groups


def turns_of(dialogue: Dialogue) -> int:
    return len(dialogue.texts) // 2


def test_an_outcome_counts_repeated_guesses() -> None:
    texts = tuple(text for guess in "ababaa" for text in (guess, "colours"))

    outcome = Wordle({"num_words": 60}).outcome(Dialogue(texts, (-1.0, None) * 6, True))

    assert outcome == {"success": 0, "repeated_guesses": 4}


def test_a_winning_guess_costs_nothing_and_is_a_success() -> None:
    task = Wordle({"num_words": 60})

    for dialogue in task.stream("games", "fitting")(np.random.default_rng(1), 30, 0):
        *_, won = [reward for reward in dialogue.rewards if reward is not None]
        assert task.outcome(dialogue)["success"] == (won == 0.0)
        assert dialogue.total == won - (turns_of(dialogue) - 1)


@pytest.mark.parametrize("kind", ["branch", "adversarial"])
def test_groups_are_numbered_from_the_first_and_have_one_expert(kind: str) -> None:
    groups = grouped(draw(kind))

    assert list(groups) == list(range(FIRST_GROUP, FIRST_GROUP + GAMES))
    assert all(len(games["expert"]) == 1 for games in groups.values())


def test_every_state_of_an_expert_has_its_branches() -> None:
    for games in grouped(draw("branch")).values():
        (expert,) = games["expert"]
        starts = collections.Counter(branch.meta["start"] for branch in games["branch_suboptimal"])
        assert starts == dict.fromkeys(range(turns_of(expert)), 2)


def test_a_branch_has_the_expert_s_turns_before_its_start() -> None:
    for games in grouped(draw("branch")).values():
        (expert,) = games["expert"]
        for branch in games["branch_suboptimal"]:
            shared = 2 * branch.meta["start"]
            assert branch.texts[:shared] == expert.texts[:shared]


def test_published_branches_restart_after_the_guess_for_experts_state() -> None:
    table = Wordle({"num_words": 60}).environment().reset(np.random.default_rng(0)).table
    continued = []

    for games in grouped(draw("branch", branch_restarts=True, suboptimal="fitting")).values():
        (expert,) = games["expert"]
        for branch in games["branch_suboptimal"]:
            shared = 2 * branch.meta["start"]
            codes = [CODES[text] for text in expert.texts[1:shared:2]]
            state = WordleObservation(table, expert.texts[:shared:2], codes)
            assert state.fits[table.index[branch.texts[0]]]
            continued.append(branch.texts[:shared] == expert.texts[:shared])

    # The game itself begins on an empty board.
    assert not all(continued)


def test_adversaries_take_over_at_the_third_guess_of_long_games() -> None:
    numbers = set()

    for games in grouped(draw("adversarial", games=60, num_words=0)).values():
        (expert,) = games["expert"]
        numbers.add((turns_of(expert) > 3, len(games["adversarial"])))
        for game in games["adversarial"]:
            assert game.meta["start"] == 2
            assert game.texts[:4] == expert.texts[:4]

    assert numbers == {(False, 0), (True, 3)}


def test_each_expert_s_game_has_whole_suboptimal_games_beside_it() -> None:
    for games in grouped(draw("adversarial")).values():
        assert [game.meta["start"] for game in games["suboptimal"]] == [0, 0]
