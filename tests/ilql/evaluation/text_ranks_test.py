"""How the texts of recorded dialogues, runs of their tokens and an expert's tokens are ranked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql import evaluate_text
from motif_jax.ilql.config import EvaluateTextConfig, Ranks
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.dialogue_tokens import constant_reward, tokenise
from motif_jax.ilql.evaluation import text_ranks
from motif_jax.ilql.evaluation.recorded_texts import ActionValues, ValuedDialogue
from motif_jax.ilql.evaluation.text_ranks import Pair, RankedUtterance
from motif_jax.ilql.tasks import registry
from tests import text_agents
from tests.ilql.evaluation.text_values_test import (
    ENDED,
    RUNNING,
    TOKENIZER,
    TWO_ACTIONS,
    WITHOUT_ACTIONS,
)
from tests.reward_fixtures import load_config


def valued(
    dialogue: Dialogue, advantages: list[float], q: list[float] | None = None
) -> ValuedDialogue:
    """A dialogue whose tokens, `</a>` included, have these advantages (target Q - V) over a V of
    1.
    """
    item = tokenise(dialogue, TOKENIZER, constant_reward(0.0))
    assert len(advantages) == len(item.action_indices)
    v = np.ones(len(advantages), np.float32)
    target_q = v + np.float32(advantages)
    online_q = target_q if q is None else np.float32(q)
    return ValuedDialogue(dialogue, item, ActionValues(online_q, target_q, v, -v))


# The 9s are of `</a>`, which utterances leave out.
VALUED = [
    valued(ENDED, [1, 2, 9, 3, 4, 9]),
    valued(RUNNING, [5, 0, 9, -1, -2, 9, 1, 1, 9]),
    valued(WITHOUT_ACTIONS, []),
    valued(TWO_ACTIONS, [-1, 9, 2, 2, 2, 9]),
]


def test_spans_are_the_tokens_of_each_action() -> None:
    assert [one.spans for one in VALUED] == [
        [slice(0, 3), slice(3, 6)],
        [slice(0, 3), slice(3, 6), slice(6, 9)],
        [],
        [slice(0, 2), slice(2, 6)],
    ]


def test_utterances_are_ranked_by_their_mean_advantage() -> None:
    assert text_ranks.utterances(VALUED) == [
        RankedUtterance("bca", 1, 6.0),
        # 3, 7, 5 and 2.
        RankedUtterance("ca", 4, 4.25),
        RankedUtterance("a", 1, -1.0),
        RankedUtterance("bb", 1, -3.0),
    ]


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (1, [("c", 5, 12 / 5), ("a", 6, 8 / 6), ("b", 3, -1 / 3)]),
        (2, [("ca", 5, 21 / 5), ("bc", 1, 4.0), ("bb", 1, -3.0)]),
    ],
)
def test_runs_of_tokens_are_ranked_within_actions(
    n: int, expected: list[tuple[str, int, float]]
) -> None:
    ranked = text_ranks.n_grams(VALUED, TOKENIZER, n)

    assert [(one.text, one.times) for one in ranked] == [
        (text, times) for text, times, _ in expected
    ]
    np.testing.assert_allclose(
        [one.advantage for one in ranked], [mean for *_, mean in expected], rtol=1e-6
    )


def test_pairs_are_an_expert_and_others_of_its_group() -> None:
    metas: list[dict[str, Any]] = [
        {"kind": "x", "group": 0, "start": 1},
        {"kind": "y", "group": 0, "start": 0},
        # A turn that the dialogues do not have.
        {"kind": "x", "group": 0, "start": 2},
        {"kind": "x", "group": 0, "start": -1},
        {"kind": "x", "group": 0, "start": True},
        {"kind": "3", "group": 0, "start": 1},
        {"kind": "expert", "group": 0},
        # Data of another origin.
        {"kind": "x", "start": 0},
        {"kind": "expert", "group": 1},
        {"kind": 3, "group": 0, "start": 1},
    ]
    dialogues = Dialogues.of([Dialogue(("a", "b"), (1.0, 2.0), True, meta) for meta in metas])

    assert text_ranks.pairs_of(dialogues) == [
        Pair(expert=6, other=0, turn=1, kind="x"),
        Pair(expert=6, other=1, turn=0, kind="y"),
        Pair(expert=6, other=5, turn=1, kind="3"),
    ]


def test_accuracy_counts_from_the_end_of_an_action() -> None:
    """Q of the expert's tokens 1, 2, 3; of one other 3, 2, 1; of a shorter one 0, 5. The target Qs
    are their negatives.
    """
    two_letters = Dialogue(("ca",), (1.0,), True)
    expert = valued(two_letters, [-2, -3, -4], q=[1, 2, 3])
    other = valued(two_letters, [-4, -3, -2], q=[3, 2, 1])
    shorter = valued(Dialogue(("a",), (1.0,), True), [-1, -6], q=[0, 5])
    pairs = [Pair(0, 1, 0, "x"), Pair(0, 2, 0, "x")]

    assert text_ranks.ranking_accuracy([expert, other, shorter], pairs) == {
        "x_q_rank_acc_-1": 0.5,  # 3 > 1, but not 3 > 5
        "x_q_rank_acc_-2": 0.5,  # not 2 > 2, but 2 > 0
        "x_q_rank_acc_-3": 0.0,
        "x_q_rank_ties_-1": 0.0,
        "x_q_rank_ties_-2": 0.5,
        "x_q_rank_ties_-3": 0.0,
        "x_q_target_rank_acc_-1": 0.5,
        "x_q_target_rank_acc_-2": 0.0,
        "x_q_target_rank_acc_-3": 1.0,
        "x_pairs": 2,
    }


@pytest.mark.parametrize(("limit", "expected"), [(1, 2), (2, 2), (3, 3), (4, 4), (9, 4)])
def test_the_first_dialogues_end_with_a_complete_group(
    tmp_path: Path, limit: int, expected: int
) -> None:
    """The first two dialogues are one group."""
    groups = ({"group": 0}, {"group": 0}, {"group": 1}, {})
    dialogues = [Dialogue(("a",), (0.0,), True, group) for group in groups]
    dialogue_files.write(tmp_path / "dialogues.parquet", [Dialogues.of(dialogues)], {})
    config = EvaluateTextConfig(kind="rank", data=str(tmp_path), rank=Ranks(dialogues=limit))

    assert len(text_ranks.read_dialogues(config)) == expected


def test_a_token_without_an_accuracy_has_a_dash() -> None:
    accuracy = {"human_q_rank_acc_-1": 0.75, "human_q_target_rank_acc_-2": 0.5, "human_v": 1.0}

    header, rows = text_ranks.accuracy_rows({"a": {"method": "ilql", "accuracy": accuracy}})

    assert header == ["agent", "data", "values", "token -1", "token -2"]
    assert rows == [
        ["a (ilql)", "human", "q", "0.750", "–"],
        ["a (ilql)", "human", "q target", "–", "0.500"],
    ]


@pytest.mark.slow
def test_dialogues_longer_than_the_agent_reads_are_refused(tmp_path: Path) -> None:
    agent = text_agents.write(tmp_path / "ilql")
    dialogues = Dialogues.of([Dialogue((guess,), (-1.0,), True) for guess in ("crane", "a" * 96)])
    dialogue_files.write(tmp_path / "dialogues.parquet", [dialogues], {})
    config = load_config("evaluate_text", "rank", {"agent": str(agent), "data": str(tmp_path)})

    with pytest.raises(UserError, match="up to token 98, the agent 96"):
        evaluate_text.check(config, tmp_path / "ranks")


def test_games_are_compared_from_where_they_leave_the_expert_s() -> None:
    task = registry.make("wordle", {"num_suboptimal": 1, "num_adversarial": 2})
    dialogues = task.stream("adversarial", "optimal")(np.random.default_rng(0), 60, 0)

    pairs = text_ranks.pairs_of(dialogues)

    assert {(pair.kind, pair.turn) for pair in pairs} == {("suboptimal", 0), ("adversarial", 2)}
    for pair in pairs:
        expert = dialogues[pair.expert]
        other = dialogues[pair.other]
        assert expert.meta["kind"] == "expert"
        assert expert.texts[: 2 * pair.turn] == other.texts[: 2 * pair.turn]


WORDLE = registry.make("wordle", {"num_words": 20}).tokenizer()
NO_LETTER = "<b><b><b><b><b>"


@pytest.fixture
def games() -> list[ValuedDialogue]:
    """Two games that part with the second guess. Q counts the tokens up; in the second game it is
    lower at even tokens and higher at odd ones.
    """
    metas = {
        "slate": {"kind": "expert", "group": 0},
        "blimp": {"kind": "branch_suboptimal", "group": 0, "start": 1},
    }
    games = []
    for number, (guess, meta) in enumerate(metas.items()):
        rewards = (-1.0, None, -1.0, None)
        dialogue = Dialogue(("crane", NO_LETTER, guess, NO_LETTER), rewards, False, meta)
        item = tokenise(dialogue, WORDLE, constant_reward(0.0))
        count = len(item.action_indices)
        difference = np.where(np.arange(count) % 2 == 0, -0.5, 0.5)
        q = np.arange(count, dtype=np.float32) + number * difference
        games.append(
            ValuedDialogue(dialogue, item, ActionValues(q, -q, np.ones(count, np.float32), q))
        )
    return games


def test_an_experts_tokens_are_ranked_against_its_branchs(games: list[ValuedDialogue]) -> None:
    pairs = text_ranks.pairs_of(Dialogues.of(game.dialogue for game in games))
    assert pairs == [Pair(0, 1, 1, "branch_suboptimal")]

    accuracy = text_ranks.ranking_accuracy(games, pairs)

    # Tokens 6 to 11 of an action each, counted from the end: the expert's even ones are ranked
    # above.
    by_q = [accuracy[f"branch_suboptimal_q_rank_acc_-{token}"] for token in range(1, 7)]
    by_target_q = [
        accuracy[f"branch_suboptimal_q_target_rank_acc_-{token}"] for token in range(1, 7)
    ]
    assert by_q == [0, 1, 0, 1, 0, 1]
    assert by_target_q == [1, 0, 1, 0, 1, 0]


def test_an_utterance_has_its_mean_advantage_over_all_games(games: list[ValuedDialogue]) -> None:
    utterances = {utterance.text: utterance for utterance in text_ranks.utterances(games)}

    crane = utterances["crane"]
    assert crane.times == 2
    # Target Q less V of the first five tokens, of both games.
    np.testing.assert_allclose(crane.advantage, np.mean([-10.0 - 5, -(10.0 - 0.5) - 5]))


def test_n_grams_are_counted_over_all_games(games: list[ValuedDialogue]) -> None:
    counts = {gram.text: gram.times for gram in text_ranks.n_grams(games, WORDLE, 5)}

    assert counts == {"crane": 2, "slate": 1, "blimp": 1}
