"""An agent's values on recorded dialogues: what it reads, and the numbers of each token."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.evaluation import recorded_texts
from motif_jax.lm.config import parse
from motif_jax.lm.model import LanguageModel
from tests import text_agents, toy_text

TOY = "tests.toy_text:Task"
TOKENIZER = toy_text.Letters()
ENDED = Dialogue(("abc", "ca", "b", "ca"), (None, 1.0, None, -0.5), True)
RUNNING = Dialogue(("ca", "bb", "ca"), (0.25, 0.5, 2.0), False)
WITHOUT_ACTIONS = Dialogue(("c",), (None,), True)
TWO_ACTIONS = Dialogue(("abc", "a", "b", "bca"), (None, 1.0, None, 3.0), True)


def network_of(positions: int | None) -> TextAgentNetwork:
    sizes = {
        "vocab_size": 32,
        "n_embd": 8,
        "n_layer": 1,
        "n_head": 1,
        "n_positions": positions or 16,
    }
    config = parse({"model_type": "gpt2", **sizes, "bos_token_id": None, "eos_token_id": None})
    if positions is None:
        config = dataclasses.replace(config, max_length=None)
    return TextAgentNetwork(LanguageModel(config), Design())


ALL = Dialogues.of([ENDED, RUNNING, WITHOUT_ACTIONS, TWO_ACTIONS])


@pytest.mark.parametrize("positions", [None, 13])
def test_dialogues_fit_a_network_with_enough_positions(positions: int | None) -> None:
    recorded_texts.require_fit(network_of(positions), TOKENIZER, ALL, "data")


def test_a_dialogue_behind_the_last_position_is_refused() -> None:
    with pytest.raises(UserError) as error:
        recorded_texts.require_fit(network_of(12), TOKENIZER, ALL, "data")

    assert str(error.value) == "data: dialogue 0 has actions up to token 13, the agent 12 positions"


Q_MIN = -0.01


def saved_agent(
    folder: Path, design: Design | None = None, **settings: Any
) -> agent_folder.SavedAgent:
    run = text_agents.write(folder, design, task=TOY, settings={"q_min": Q_MIN, **settings})
    return agent_folder.load(run, "agent")


@pytest.mark.extra
def test_values_are_those_of_each_dialogue_alone(tmp_path: Path) -> None:
    saved = saved_agent(tmp_path)
    # More than one batch.
    dialogues = Dialogues.of([*ALL] * 17)

    rows = list(recorded_texts.values_of(saved, dialogues))

    assert [row.dialogue for row in rows] == list(dialogues)
    for row in rows[:4]:
        tokens = row.item.tokens.tolist()
        readout = saved.network.readouts(
            saved.params, jax.numpy.array([tokens]), jax.numpy.ones((1, len(tokens)), bool)
        )
        log_probs = jax.nn.log_softmax(readout.logits)
        for number, position in enumerate(row.item.action_indices):
            token = tokens[position + 1]
            q = min(float(online[0, position, token]) for online in readout.qs)
            target_q = max(float(readout.target_q[0, position, token]), Q_MIN)
            np.testing.assert_allclose(row.values.q[number], q, rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(row.values.target_q[number], target_q, rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(
                row.values.v[number], readout.values[0, position], rtol=1e-3, atol=1e-5
            )
            np.testing.assert_allclose(
                row.values.log_probs[number], log_probs[0, position, token], rtol=1e-3, atol=1e-5
            )


@pytest.mark.slow
def test_a_row_has_a_dialogues_means_and_the_shown_tokens(tmp_path: Path) -> None:
    saved = saved_agent(tmp_path)
    (values, _) = (
        one.values for one in recorded_texts.values_of(saved, Dialogues.of([ENDED, RUNNING]))
    )

    first, second = recorded_texts.rows(saved, ALL, [0, 1], shown=1)

    assert (first["index"], first["return"], first["length"], first["tokens_said"]) == (
        0,
        0.5,
        2,
        6,
    )
    assert first["policy_loss"] == pytest.approx(-values.log_probs.mean())
    assert first["q"] == pytest.approx(values.q.mean())
    assert first["v"] == pytest.approx(values.v.mean())
    assert first["advantage"] == pytest.approx((values.target_q - values.v).mean())
    assert first["dialogue"] == {
        "texts": list(ENDED.texts),
        "rewards": list(ENDED.rewards),
        "terminal": True,
    }
    assert [action["pieces"] for action in first["tokens"]] == [["c", "a", "</a>"]] * 2
    np.testing.assert_allclose(first["tokens"][0]["q"], values.target_q[:3], rtol=1e-4)
    np.testing.assert_allclose(first["tokens"][1]["policy"], values.log_probs[3:], rtol=1e-4)
    assert (second["index"], second["return"], second["length"]) == (1, 2.75, 3)
    assert "tokens" not in second


@pytest.mark.slow
def test_a_policy_alone_has_no_values(tmp_path: Path) -> None:
    saved = saved_agent(tmp_path, Design(q="none", v=False))

    (row,) = recorded_texts.rows(saved, ALL, [0], shown=1)

    assert not {"q", "v", "advantage"} & set(row)
    for action in row["tokens"]:
        assert action["q"] == action["v"] == [0.0, 0.0, 0.0]
        assert all(number < 0 for number in action["policy"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "totals"),
    [
        ({}, [4.0, 2.75]),
        # As in a training on cut dialogues: the first action of one dialogue, of two tokens, and
        # all but the last token of three actions of the other.
        ({"max_len": 9, "token_reward": {"constant": -0.25}}, [0.5, -1.25]),
    ],
    ids=["whole", "cut and with rewards of tokens"],
)
def test_a_decision_transformer_reads_a_recorded_dialogue_after_its_return(
    tmp_path: Path, settings: dict[str, Any], totals: list[float]
) -> None:
    saved = saved_agent(tmp_path, Design("none", prefix=True), **settings)
    readouts = jax.jit(saved.network.readouts)
    dialogues = Dialogues.of([TWO_ACTIONS, RUNNING])

    rows = list(recorded_texts.values_of(saved, dialogues))

    for row, total in zip(rows, totals, strict=True):
        tokens = row.item.tokens[None]
        returns = np.array([total], np.float32)
        readout = readouts(saved.params, tokens, np.ones_like(tokens, bool), returns)
        log_probs = jax.nn.log_softmax(readout.logits)
        for number, position in enumerate(row.item.action_indices):
            expected = log_probs[0, position, row.item.tokens[position + 1]]
            np.testing.assert_allclose(row.values.log_probs[number], expected, rtol=1e-3, atol=1e-5)


def test_dialogues_beyond_the_positions_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "talk.parquet"
    dialogue_files.write(path, [ALL], {})

    recorded = recorded_texts.dialogues_of({}, "", str(path), network_of(12), TOKENIZER, 2)

    assert [dialogue.texts for dialogue in recorded.dialogues] == [RUNNING.texts]
    assert recorded.too_long == 2
    with pytest.raises(UserError, match="within its positions, and has none"):
        recorded_texts.dialogues_of({}, "", str(path), network_of(3), TOKENIZER, 2)
