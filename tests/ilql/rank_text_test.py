from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql import rank_text
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.evaluation import text_values
from motif_jax.ilql.evaluation.text_values import ActionValues, Pair, ValuedDialogue
from motif_jax.ilql.tasks import registry
from tests import text_agents
from tests.reward_fixtures import load_config


@pytest.mark.slow
def test_dialogues_longer_than_the_agent_reads_are_refused(tmp_path: Path) -> None:
    agent = text_agents.write(tmp_path / "ilql")
    dialogues = Dialogues.of([Dialogue((guess,), (-1.0,), True) for guess in ("crane", "a" * 96)])
    parquet.write(tmp_path / "dialogues.parquet", [dialogues], {})
    config = load_config("rank_text", "smoke", {"agents": str(agent), "data": str(tmp_path)})

    with pytest.raises(UserError, match="up to token 98, the agent 96"):
        rank_text.check(config, tmp_path / "ranks")


def test_games_are_compared_from_where_they_leave_the_expert_s() -> None:
    task = registry.make("wordle", {"num_suboptimal": 1, "num_adversarial": 2})
    dialogues = task.stream("adversarial", "optimal")(np.random.default_rng(0), 60, 0)

    pairs = text_values.pairs_of(dialogues)

    assert {(pair.kind, pair.turn) for pair in pairs} == {("suboptimal", 0), ("adversarial", 2)}
    for pair in pairs:
        expert = dialogues[pair.expert]
        other = dialogues[pair.other]
        assert expert.meta["kind"] == "expert"
        assert expert.texts[: 2 * pair.turn] == other.texts[: 2 * pair.turn]


TOKENIZER = registry.make("wordle", {"num_words": 20}).tokenizer()
NO_LETTER = "<b><b><b><b><b>"


@pytest.fixture
def valued() -> list[ValuedDialogue]:
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
        item = text_values.tokenise(dialogue, TOKENIZER, text_values.constant(0.0))
        count = len(item.action_indices)
        difference = np.where(np.arange(count) % 2 == 0, -0.5, 0.5)
        q = np.arange(count, dtype=np.float32) + number * difference
        games.append(
            ValuedDialogue(dialogue, item, ActionValues(q, -q, np.ones(count, np.float32), q))
        )
    return games


def test_an_experts_tokens_are_ranked_against_its_branchs(valued: list[ValuedDialogue]) -> None:
    pairs = text_values.pairs_of(Dialogues.of(game.dialogue for game in valued))
    assert pairs == [Pair(0, 1, 1, "branch_suboptimal")]

    accuracy = text_values.ranking_accuracy(valued, pairs)

    # Tokens 6 to 11 of an action each, counted from the end: the expert's even ones are ranked
    # above.
    by_q = [accuracy[f"branch_suboptimal_q_rank_acc_-{token}"] for token in range(1, 7)]
    by_target_q = [
        accuracy[f"branch_suboptimal_q_target_rank_acc_-{token}"] for token in range(1, 7)
    ]
    assert by_q == [0, 1, 0, 1, 0, 1]
    assert by_target_q == [1, 0, 1, 0, 1, 0]


def test_an_utterance_has_its_mean_advantage_over_all_games(valued: list[ValuedDialogue]) -> None:
    utterances = {utterance.text: utterance for utterance in text_values.utterances(valued)}

    crane = utterances["crane"]
    assert crane.times == 2
    # Target Q less V of the first five tokens, of both games.
    np.testing.assert_allclose(crane.advantage, np.mean([-10.0 - 5, -(10.0 - 0.5) - 5]))


def test_n_grams_are_counted_over_all_games(valued: list[ValuedDialogue]) -> None:
    counts = {gram.text: gram.times for gram in text_values.n_grams(valued, TOKENIZER, 5)}

    assert counts == {"crane": 2, "slate": 1, "blimp": 1}
