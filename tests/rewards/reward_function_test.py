"""A reward as a function: what was said once is looked up, and it says what training knew."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.rewards import training_texts
from motif_jax.rewards.reward_function import as_rows
from motif_jax.rewards.reward_model import RewardModel
from motif_jax.support.errors import UserError

pytestmark = pytest.mark.slow


def test_a_message_is_computed_once_however_it_is_given(trained, monkeypatch) -> None:
    asked, compute = [], RewardModel.of_messages

    def counted(self, params, rows):
        asked.append(len(rows))
        return compute(self, params, rows)

    monkeypatch.setattr(RewardModel, "of_messages", counted)
    reward = rewards.load(trained)
    texts = ["You see here a key.", "It's a wall.", "It's a wall.", ""]
    first = reward(texts)
    assert asked == [3]
    np.testing.assert_array_equal(reward(texts), first)
    np.testing.assert_array_equal(reward([texts[3], texts[0]]), first[[3, 0]])
    assert asked == [3]
    rows = as_rows(texts)[0].reshape(2, 2, 256)
    np.testing.assert_array_equal(reward(rows), first.reshape(2, 2))
    np.testing.assert_array_equal(reward(rows[..., :64]), first.reshape(2, 2))
    np.testing.assert_array_equal(reward(np.asfortranarray(rows)), first.reshape(2, 2))
    np.testing.assert_array_equal(reward([text.encode() for text in texts] * 2), [*first, *first])
    assert float(reward(texts[0])) == first[0]
    assert asked == [3]


def test_it_says_what_training_knew(trained, tmp_path) -> None:
    reward = rewards.load(trained)
    dataset = PairsDataset.open(trained.parent / "dataset")
    shown = np.unique(dataset.data["message"].reshape(-1, 256), axis=0)
    known = reward.known(shown)
    assert known.mean() > 0.5  # of the dataset a part is kept for validation
    assert not reward.known("No game has ever said this.")
    np.testing.assert_array_equal(reward.known(shown[:4].reshape(2, 2, 256)), known[:4].reshape(2, 2))
    (tmp_path / training_texts.FILE).write_bytes((trained / training_texts.FILE).read_bytes()[:-3])
    with pytest.raises(UserError, match="damaged"):
        training_texts.read_training_texts(tmp_path)
    (tmp_path / training_texts.FILE).unlink()
    with pytest.raises(UserError, match="the run's command writes it again"):
        training_texts.read_training_texts(tmp_path)
