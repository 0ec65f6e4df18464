"""train_text by PPO: what was written is learned from as it was, from where the policy began; stopped it ends with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.language.text_agent import Design
from motif_jax.rollouts import text_rollouts
from motif_jax.stages import train_text as stage
from motif_jax.support.errors import UserError
from motif_jax.support.metrics import read_metrics
from motif_jax.trainers import text_ppo
from tests import resumed, text_agents
from tests.stages.train_text_test import TOY, config_of, same_bits, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")

VALUES = {
    "batch_size": 8, "chunk_steps": 1, "dropout": 0.0, "games.episodes": 4, "ppo.minibatches": 2, "ppo.epochs": 2, "ppo.kl.coefficient": 0.1,
    "ppo.kl.target": 0.01, "ppo.kl.horizon": 100, "network.max_length": 1024,
}  # fmt: skip


@pytest.fixture(scope="module")
def speaks(tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = {"longest_action": 3}
    return str(
        text_agents.write(
            tmp_path_factory.mktemp("speaks"), Design(q="none"), "bc", TOY, {"length": 2}, 0, settings
        )
    )


@pytest.mark.extra
def test_killed_while_it_plays_it_ends_with_the_same_bits(
    tmp_path: Path, speaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {**VALUES, "initial.policy": speaks, "save_every_seconds": 1e-6, "log_every_seconds": 1e-9}
    whole = train(tmp_path / "whole", "ppo", **values)
    played, made = [], text_rollouts.batch_of

    def killed(*given: Any) -> Any:
        played.append(1)
        if len(played) == 4:  # with one step since the last evaluation
            raise KeyboardInterrupt
        return made(*given)

    with monkeypatch.context() as patch:
        patch.setattr(text_rollouts, "batch_of", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "killed", "ppo", **values)
    with resumed.takes(1):
        train(tmp_path / "killed", "ppo", **values)
    assert len(same_bits(whole, tmp_path / "killed")) == 1
    rows = [
        row for row in read_metrics(whole) if "reference/kl" in row and "throughput/tokens_per_second" in row
    ]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    # What it says at first is what the reference says, of which it is told nothing.
    assert rows[0]["reference/kl"] == pytest.approx(0, abs=1e-4)
    assert rows[0]["reference/coefficient"] == pytest.approx(0.1)
    assert rows[1]["reference/coefficient"] == pytest.approx(0.1 * (1 - 0.2 * 8 * 2 / 100), rel=1e-4)
    assert rows[-1]["reference/kl"] > 1e-3
    assert rows[0]["policy/ratio_min"] < 1 < rows[0]["policy/ratio_max"]


def test_what_it_wrote_is_as_likely_in_learning_as_it_was_in_playing(
    tmp_path: Path, speaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delimiters in the middle of an action and actions that were cut too; of additions to a frozen trunk, which is the reference."""
    seen: list[Any] = []
    step = text_ppo.PpoTraining.batches_for

    def kept(self: Any, state: Any, shared: Any, first: int, count: int) -> Any:
        batch = step(self, state, shared, first, count)
        found = jax.tree.map(lambda leaf: leaf[0], batch)
        look = self.look(self.parallel.acting(state.params), self.parallel.acting(shared), found.dialogues)
        seen.append((found, np.asarray(look.log_probs)))
        assert text_ppo.REFERENCE not in shared
        assert set(state.params) == {"additions", text_ppo.VALUE}
        return batch

    monkeypatch.setattr(text_ppo.PpoTraining, "batches_for", kept)
    lora = {"lora.patterns": "*/attention/query", "lora.rank": 2, "max_steps": 2}
    train(tmp_path / "run", "ppo", **{**VALUES, **lora, "initial.policy": speaks})
    ends = 0
    for played, log_probs in seen:
        live = played.dialogues.live
        np.testing.assert_allclose(played.log_probs[live], log_probs[live], atol=2e-5)
        assert (played.utterances == 2).all()
        ends += int((live.sum(axis=1) < 6).sum())
        assert live.sum() >= played.utterances.sum()
    assert ends < 16  # some were cut: they have all three tokens that an action may have


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "config.initial.policy=None: must be a run of train_text that speaks already"),
        (
            {"batch_size": 9},
            "config.batch_size=9: must be a multiple of ppo.minibatches x accumulate x devices, 2",
        ),
        ({"dropout": 0.1}, "config.dropout=0.1: must be 0"),
        ({"data": "/nowhere"}, "config.data='/nowhere': must be None"),
        (
            {"ppo.kl.coefficient": 0.0},
            "config.ppo.kl.coefficient=0.0: must be above 0 with config.ppo.kl.target",
        ),
        ({"initial.policy": "speaks", "task": "dialogues"}, "was trained for the task"),
    ],
)
def test_what_cannot_be_trained_is_refused(tmp_path: Path, speaks: str, changes: Any, message: str) -> None:
    named = {key: speaks if value == "speaks" else value for key, value in changes.items()}
    with pytest.raises(UserError) as error:
        stage.check(config_of("ppo", **{**VALUES, **named}), tmp_path / "run")
    assert message in str(error.value)
