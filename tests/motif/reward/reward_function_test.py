"""A reward as a function: what it reads, which texts it computes, and which of them training
knew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.reward.reward_function import RewardFunction, as_rows
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.oni.online_model import OnlineRewardModel


def test_a_reward_knows_the_texts_of_its_training(trained) -> None:
    reward = rewards.load(trained)
    dataset = PairsDataset.open(trained.parent / "dataset")
    messages = np.unique(dataset.data["message"].reshape(-1, 256), axis=0)

    is_known = reward.known(messages)

    # A part of the dataset is left for validation.
    assert is_known.mean() > 0.5
    assert not reward.known("No game has ever said this.")
    np.testing.assert_array_equal(
        reward.known(messages[:4].reshape(2, 2, 256)), is_known[:4].reshape(2, 2)
    )


CONFIG = {
    "reward": {
        "kind": "ranking",
        "normalise": True,
        "threshold": 0.75,
    },
    "compat": {},
}


class Sums(OnlineRewardModel):
    """Rewards a message by the sum of its first three bytes over 20; notes what it computes."""

    computed: list[bytes]

    def members_of_messages(self, params: Any, messages: np.ndarray) -> np.ndarray:
        self.computed.extend(map(bytes, messages))
        return messages[None, :, :3].sum(-1, dtype=np.float32) / params


@pytest.fixture
def reward(tmp_path: Path) -> RewardFunction:
    network = RewardNetwork(RewardArchitecture(message="lt_cnn_small"))
    moments = {"mean": 3.0, "variance": 4.0, "quantiles": []}
    model = Sums(tmp_path, 7, network, 20.0, 1, moments, CONFIG, [], taken=1)
    Sums.computed = []
    return RewardFunction(model)


def test_a_text_is_read_in_utf8() -> None:
    rows, shape = as_rows(["你赢了", "你输了", "can’t"])
    assert shape == (3,)
    assert [bytes(row).rstrip(b"\0").decode() for row in rows] == ["你赢了", "你输了", "can’t"]


NUMBERS = np.array([[1, 2], [97, 255]])
MESSAGES: list[tuple[Any, list[bytes], tuple[int, ...]]] = [
    ("Hi", [b"Hi"], ()),
    (b"Hi\0\0", [b"Hi"], ()),
    (bytearray(b"ab"), [b"ab"], ()),
    ("\u00e9", [b"\xc3\xa9"], ()),
    ("", [b""], ()),
    ([], [], (0,)),
    (["a", b"b", np.array([99, 0])], [b"a", b"b", b"c"], (3,)),
    ("x" * 256, [b"x" * 256], ()),
    (NUMBERS, [b"\x01\x02", b"a\xff"], (2,)),
    (np.asfortranarray(NUMBERS), [b"\x01\x02", b"a\xff"], (2,)),
    (NUMBERS[None, :, :1], [b"\x01", b"a"], (1, 2)),
    (np.zeros((2, 0), int), [b"", b""], (2,)),
    (np.zeros((0, 9), int), [], (0,)),
    (np.array("ab"), [b"ab"], ()),
    (np.array([["a", "b"]]), [b"a", b"b"], (1, 2)),
    (np.array([b"x"], object), [b"x"], (1,)),
    (jnp.array([[1, 2]]), [b"\x01\x02"], (1,)),
]


@pytest.mark.parametrize(("messages", "texts", "shape"), MESSAGES, ids=range(len(MESSAGES)))
def test_messages_are_texts_bytes_and_arrays_of_them(
    messages: Any, texts: list[bytes], shape: tuple[int, ...]
) -> None:
    rows, answer_shape = as_rows(messages)
    assert [bytes(row).rstrip(b"\0") for row in rows] == texts
    assert rows.shape == (len(texts), 256)
    assert rows.dtype == np.uint8
    assert answer_shape == shape


@pytest.mark.parametrize(("messages", "texts", "shape"), MESSAGES, ids=range(len(MESSAGES)))
def test_each_message_has_its_reward(
    reward: RewardFunction, messages: Any, texts: list[bytes], shape: tuple[int, ...]
) -> None:
    """The mean is 3 and the deviation 2."""
    raw = np.array([sum(text[:3]) / 20 for text in texts]).reshape(shape)
    np.testing.assert_allclose(reward.raw(messages), raw, rtol=1e-5)
    np.testing.assert_allclose(reward(messages), (raw - 3) / 2, rtol=1e-5)
    normalised = (raw - 3) / 2
    np.testing.assert_allclose(
        reward.intrinsic(messages), np.where(normalised > 0.75, normalised, 0), rtol=1e-5
    )


def test_each_text_is_computed_once(reward: RewardFunction) -> None:
    for messages in ("Hi", b"Hi\0", ["Hi", "Ho", "Ho"], "Ho"):
        reward(messages)
        reward.raw(messages)
    assert sorted(text.rstrip(b"\0") for text in Sums.computed) == [b"Hi", b"Ho"]


def test_a_threshold_may_be_left_out(reward: RewardFunction) -> None:
    assert reward.intrinsic("a", None) == pytest.approx((97 / 20 - 3) / 2)


def test_a_reward_without_its_trainings_texts_knows_none(reward: RewardFunction) -> None:
    with pytest.raises(UserError, match="does not say what its reward was trained on"):
        reward.known("a")


def test_a_single_model_has_no_disagreement(reward: RewardFunction) -> None:
    with pytest.raises(
        UserError, match=r"nothing can disagree: train with --config\.ensemble\.members=5"
    ):
        reward.disagreement("a")
