from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql import rank_text
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.evaluation import text_values
from motif_jax.ilql.tasks import registry
from tests import text_agents
from tests.reward_fixtures import load_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_what_an_agent_cannot_read_is_not_ranked(tmp_path: Path) -> None:
    agent = text_agents.write(tmp_path / "ilql")
    dialogues = Dialogues.of([Dialogue((said,), (-1.0,), True) for said in ("crane", "a" * 96)])
    parquet.write(tmp_path / "dialogues.parquet", [dialogues], {})
    ranks = load_config("rank_text", "smoke", {"agents": str(agent), "data": str(tmp_path)})
    with pytest.raises(UserError, match="up to token 98, the agent 96"):
        rank_text.check(ranks, tmp_path / "ranks")


def test_adversarial_games_part_from_the_experts_at_the_first_or_the_third_guess() -> None:
    task = registry.make("wordle", {"num_suboptimal": 1, "num_adversarial": 2})
    dialogues = task.stream("adversarial", "optimal")(np.random.default_rng(0), 60, 0)
    pairs = text_values.pairs_of(dialogues)
    assert {(pair.kind, pair.turn) for pair in pairs} == {("suboptimal", 0), ("adversarial", 2)}
    for pair in pairs:
        expert, other = dialogues[pair.expert], dialogues[pair.other]
        assert expert.meta["kind"] == "expert"
        assert expert.texts[: 2 * pair.turn] == other.texts[: 2 * pair.turn]


def test_rankings_are_those_of_a_plain_count() -> None:
    """Two games that part with the second guess; numbers by hand."""
    task = registry.make("wordle", {"num_words": 20})
    dialogues = Dialogues.of(
        [
            Dialogue(("crane", "<b><b><b><b><b>", second, "<b><b><b><b><b>"), (-1.0, None, -1.0, None), False, meta)
            for second, meta in (
                ("slate", {"kind": "expert", "group": 0}), ("blimp", {"kind": "branch_suboptimal", "group": 0, "start": 1}),
            )
        ]
    )  # fmt: skip
    unpaid = text_values.constant(0.0)
    items = [text_values.tokenise(dialogue, task.tokenizer(), unpaid) for dialogue in dialogues]
    values = []
    for place, item in enumerate(items):
        count = len(item.action_indices)
        q = np.arange(count, dtype=np.float32) + place * np.where(np.arange(count) % 2 == 0, -0.5, 0.5)
        values.append(text_values.ActionValues(q, -q, np.ones(count, np.float32), q))
    valued = [text_values.ValuedDialogue(*each) for each in zip(dialogues, items, values, strict=True)]
    pairs = text_values.pairs_of(dialogues)
    assert pairs == [text_values.Pair(0, 1, 1, "branch_suboptimal")]
    found = text_values.ranking_accuracy(valued, pairs)
    # Tokens 6 to 11 of an action each: those at even places are ranked above.
    assert [found[f"branch_suboptimal_q_rank_acc_-{back}"] for back in range(1, 7)] == [0, 1, 0, 1, 0, 1]
    assert [found[f"branch_suboptimal_q_target_rank_acc_-{back}"] for back in range(1, 7)] == [1, 0] * 3
    ranked = {each.text: each for each in text_values.utterances(valued)}
    # -q - 1 over the first five tokens, of both games.
    assert ranked["crane"].times == 2
    np.testing.assert_allclose(ranked["crane"].advantage, np.mean([-(10.0) - 5, -(10.0 - 0.5) - 5]))
    grams = {each.text: each.times for each in text_values.n_grams(valued, task.tokenizer(), 5)}
    assert grams == {"crane": 2, "slate": 1, "blimp": 1}
