"""train_text by PPO: episodes are learned from as they were played, and a killed run ends with the
same bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.ilql.agent.text_agent import Design
from motif_jax.ilql.methods import text_ppo
from tests import resumed, text_agents
from tests.ilql.train_text_test import TOY, same_bits, train

VALUES = {
    "batch_size": 8, "chunk_steps": 1, "dropout": 0.0, "games.episodes": 4, "ppo.minibatches": 2, "ppo.epochs": 2, "ppo.kl.coefficient": 0.1,
    "ppo.kl.target": 0.01, "ppo.kl.horizon": 100, "network.max_length": 1024,
}  # fmt: skip


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of behaviour cloning, whose actions have at most three tokens."""
    folder = tmp_path_factory.mktemp("policy")
    settings = {"longest_action": 3}
    return str(
        text_agents.write(folder, Design(q="none"), "bc", TOY, {"length": 2}, settings=settings)
    )


@pytest.mark.slow
def test_tokens_are_as_likely_in_learning_as_in_play(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with delimiters within an action and with cut actions, for additions to a frozen trunk,
    which is the reference.
    """
    batches: list[tuple[Any, np.ndarray]] = []
    batches_for = text_ppo.PpoTraining.batches_for

    def recorded(self: Any, state: Any, shared: Any, first: int, count: int) -> Any:
        step = batches_for(self, state, shared, first, count)
        batch = jax.tree.map(lambda leaf: leaf[0], step)
        learned = self.parallel.acting(state.params)
        frozen = self.parallel.acting(shared)
        batches.append(
            (batch, np.asarray(self.estimates(learned, frozen, batch.dialogues).log_probs))
        )
        assert text_ppo.REFERENCE not in shared
        assert set(state.params) == {"additions", text_ppo.VALUE}
        return step

    monkeypatch.setattr(text_ppo.PpoTraining, "batches_for", recorded)
    lora = {"lora.patterns": "*/attention/query", "lora.rank": 2, "max_steps": 2}

    train(tmp_path / "run", "ppo", **{**VALUES, **lora, "initial.policy": policy})

    shorter = 0
    for batch, log_probs in batches:
        live = batch.dialogues.action_mask
        np.testing.assert_allclose(batch.log_probs[live], log_probs[live], atol=2e-5)
        assert (batch.utterances == 2).all()
        assert live.sum() >= batch.utterances.sum()
        shorter += int((live.sum(axis=1) < 6).sum())
    # Some actions were cut: they have all three tokens that an action may have.
    assert shorter < 16


@pytest.mark.extra
def test_a_run_killed_between_updates_ends_with_equal_bits(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {**VALUES, "initial.policy": policy, "max_steps": 3, "save_every_seconds": 0.0}
    batches = text_ppo.PpoTraining.batches_for

    def killed(self: Any, state: Any, shared: Any, first: int, count: int) -> Any:
        if first == 2:
            raise KeyboardInterrupt
        return batches(self, state, shared, first, count)

    with monkeypatch.context() as patch:
        patch.setattr(text_ppo.PpoTraining, "batches_for", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "killed", "ppo", **values)
    assert 0 < resumed.saved_step(tmp_path / "killed") < 3
    train(tmp_path / "killed", "ppo", **values)
    assert same_bits(train(tmp_path / "undisturbed", "ppo", **values), tmp_path / "killed")
