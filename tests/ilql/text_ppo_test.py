"""train_text by PPO: what was written is learned from as it was, from where the policy began; killed it ends with the same bits."""

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

pytestmark = pytest.mark.usefixtures("compiled_quickly")

VALUES = {
    "batch_size": 8, "chunk_steps": 1, "dropout": 0.0, "games.episodes": 4, "ppo.minibatches": 2, "ppo.epochs": 2, "ppo.kl.coefficient": 0.1,
    "ppo.kl.target": 0.01, "ppo.kl.horizon": 100, "network.max_length": 1024,
}  # fmt: skip


@pytest.fixture(scope="module")
def speaks(tmp_path_factory: pytest.TempPathFactory) -> str:
    given = Design(q="none"), "bc", TOY, {"length": 2}, 0, {"longest_action": 3}
    return str(text_agents.write(tmp_path_factory.mktemp("speaks"), *given))


@pytest.mark.slow
def test_what_it_wrote_is_as_likely_in_learning_as_it_was_in_playing(
    tmp_path: Path, speaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delimiters in the middle of an action and actions that were cut too; of additions to a frozen trunk, which is the reference."""
    seen: list[Any] = []
    step = text_ppo.PpoTraining.batches_for

    def kept(self: Any, state: Any, shared: Any, first: int, count: int) -> Any:
        batch = step(self, state, shared, first, count)
        found = jax.tree.map(lambda leaf: leaf[0], batch)
        look = self.estimates(
            self.parallel.acting(state.params), self.parallel.acting(shared), found.dialogues
        )
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


@pytest.mark.slow
def test_killed_between_two_updates_it_ends_with_the_same_bits(
    tmp_path: Path, speaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {**VALUES, "initial.policy": speaks, "max_steps": 3, "save_every_seconds": 0.0}
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
    assert same_bits(train(tmp_path / "whole", "ppo", **values), tmp_path / "killed")
