"""A reward as a function: what was said once is looked up, and it says what training knew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.reward import reward_function, training_texts
from motif_jax.motif.reward.reward_function import RewardFunction, as_rows
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.oni.online_model import OnlineRewardModel
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text


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


def test_what_is_a_message_and_what_it_is_worth(record: bool, tmp_path: Path) -> None:
    config = {
        "reward": {"kind": "ranking", "normalise": True, "threshold": 0.75, "training": {"deviations": 0.0}},
        "compat": {},
    }
    network, moments = (
        RewardNetwork(RewardArchitecture(message="lt_cnn_small")),
        {"mean": 3.0, "variance": 4.0, "quantiles": []},
    )
    asked: list[bytes] = []

    class Sums(OnlineRewardModel):
        def members_of_messages(self, params: Any, messages: np.ndarray) -> np.ndarray:
            asked.extend(map(bytes, messages))
            return messages[None, :, :3].sum(-1, dtype=np.float32) / params

    reward = RewardFunction(Sums(tmp_path, 7, network, 20.0, 1, moments, config, [], taken=1))
    numbers = np.array([[1, 2], [97, 255]])
    given = [
        "Hi",
        b"Hi\0\0",
        bytearray(b"ab"),
        "é",
        "",
        [],
        ["a", b"b", np.array([99, 0])],
        "x" * 256,
        "x" * 257,
        "\u2603",
        ["a", 7],
        numbers,
        np.asfortranarray(numbers),
        numbers[None, :, :1],
        numbers - 2,
        numbers + 1,
        numbers / 2,
        numbers > 1,
        np.int8(1),
        np.zeros((2, 0), int),
        np.array("ab"),
        np.array([["a", "b"]]),
        np.array([b"x"], object),
        np.array([7], object),
        np.zeros((1, 257), np.uint8),
        np.zeros((0, 9), int),
        7,
        None,
        jnp.array([[1, 2]]),
        [1, 2],
        [[97, 98]],
        [numbers],
        {"a": 1},
        range(30),
        {"a": "x" * 51},
        {"a": "x" * 52},
        {"a"},
    ]

    def shown(one: Any) -> tuple[Any, ...]:
        rows, shape = as_rows(one)
        return [bytes(row).rstrip(bytes(1)) for row in rows], rows.shape, rows.dtype, shape

    acts = [shown, *(lambda one, act=act: repr(act(one)) for act in (reward.raw, reward, reward.intrinsic))]
    lines = [f"{type(one)} {said(act, one)}" for one in given for act in acts]
    assert len(set(asked)) == len(asked) == 13, "each text is computed once"
    lines += [said(reward.intrinsic, "a", None), said(reward.normalisation, True, 0.5)]
    for name in ("a.txt", "a.safetensors"):
        (tmp_path / name).touch()
    places = [str(tmp_path / name) for name in ("a.txt", "a.safetensors", "b.safetensors", "")]
    lines += [said(reward_function.check_place, place, "reward.dir", folder=tmp_path) for place in places]
    lines += [said(act, "a", folder=tmp_path) for act in (reward.known, reward.disagreement)]
    compared("reward_function", {"lines": "\n".join(lines)}, record)


def test_a_text_is_read_in_utf8() -> None:
    rows, shape = as_rows(["你赢了", "你输了", "can’t"])
    assert shape == (3,)
    assert [bytes(row).rstrip(b"\0").decode() for row in rows] == ["你赢了", "你输了", "can’t"]
