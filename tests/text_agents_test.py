"""Agents of dialogues in Python: they speak, value tokens, and rank candidates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax import text_agents
from motif_jax.ilql.dialogues.dialogue import Dialogue
from tests import text_agents as tiny

COLOURS = "<y><b><g><y><b>"
MESSAGES = [{"role": "assistant", "content": "crane"}, {"role": "user", "content": COLOURS}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("agents") / "ilql")


@pytest.mark.slow
def test_equal_seeds_give_equal_replies_in_every_input_format(run: Path) -> None:
    agent = text_agents.load(run)
    texts = [agent.say(MESSAGES, seed=seed) for seed in (1, 2, 3, 1)]
    assert texts[0] == texts[3]
    assert len(set(texts)) > 1
    assert agent.say([("crane", True), (COLOURS, False)], seed=1) == texts[0]
    assert agent.say([MESSAGES[0], {"role": "tool", "content": COLOURS}], seed=1) == texts[0]
    assert agent.say(Dialogue(("crane", COLOURS), (-1.0, None), False), seed=1) == texts[0]
    assert agent.say([], greedy=True, seed=1) == agent.say([], greedy=True, seed=2)
    assert "ilql" in repr(agent)


@pytest.mark.slow
def test_values_belong_to_tokens_and_rank_the_candidates(run: Path) -> None:
    agent = text_agents.load(run)
    values = agent.values([*MESSAGES, {"role": "assistant", "content": "lodge"}])
    assert "".join(values.tokens) == "crane</a>lodge</a>"
    # Two actions of six tokens: five letters and </a>.
    np.testing.assert_array_equal(values.action, np.repeat([0, 1], 6))
    np.testing.assert_array_equal(values.advantage, values.q - values.v)
    assert (values.log_prob < 0).all()
    assert agent.values(MESSAGES[1:]).q.shape == (0,)
    ranked = agent.rank(MESSAGES, ["lodge", "crane", "pulse"])
    assert [utterance.advantage for utterance in ranked] == sorted(
        (utterance.advantage for utterance in ranked), reverse=True
    )
    lodge = next(utterance for utterance in ranked if utterance.text == "lodge")
    assert lodge.advantage == pytest.approx(values.advantage[6:].sum(), rel=1e-5)
