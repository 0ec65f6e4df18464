"""Several datasets that are read as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.motif import train_reward
from motif_jax.motif.pairs.dataset import PairsDataset, open_datasets
from motif_jax.motif.pairs.writer import write_pairs
from motif_jax.motif.reward import reward_data
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.motif.reward.reward_ratings import read_messages
from motif_jax.schema import read_section
from tests.reward_fixtures import make_dataset, reward_config, write_labels


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two datasets of 30 and 20 pairs with the labels `test` and `soft`, the first also with glyphs
    and the labels `lexicon`.
    """
    first = tmp_path / "first"
    second = tmp_path / "second"
    make_dataset(first, pairs=30, seed=0, glyphs=True)
    make_dataset(second, pairs=20, seed=1)
    write_labels(first, "lexicon", np.zeros(30, np.int8))
    write_labels(first, "soft", np.zeros(30, np.int8), np.tile([0.7, 0.2, 0.1], (30, 1)))
    write_labels(second, "soft", np.ones(20, np.int8), np.tile([0.1, 0.9, 0.0], (20, 1)))
    return [first, second]


def training_of(*folders: Path, **overrides: object) -> RewardConfig:
    return read_section(RewardConfig, reward_config(",".join(map(str, folders)), **overrides))


def test_pairs_follow_each_other_with_their_labels(folders: list[Path]) -> None:
    first, second = map(PairsDataset.open, folders)

    joined = open_datasets(folders)

    assert (joined.num_pairs, joined.length) == (50, 1)
    for name in ("message", "blstats", "rewards"):
        both = np.concatenate([first.data[name], second.data[name]])
        np.testing.assert_array_equal(joined.data[name], both)
    scores = np.concatenate([first.info["score"], second.info["score"]])
    np.testing.assert_array_equal(joined.info["score"], scores)
    labels = np.concatenate([first.preference("test"), second.preference("test")])
    np.testing.assert_array_equal(joined.preference("test"), labels, strict=True)
    probabilities = joined.probabilities("soft")
    np.testing.assert_allclose(probabilities[[0, 29]], [[0.7, 0.2, 0.1]] * 2)
    np.testing.assert_allclose(probabilities[[30, 49]], [[0.1, 0.9, 0.0]] * 2)


def test_what_one_dataset_lacks_is_not_there(folders: list[Path]) -> None:
    joined = open_datasets(folders)

    assert joined.preference_names() == ("soft", "test")
    assert "glyphs" not in joined.data
    assert set(joined.data) == {"message", "blstats", "rewards"}


def test_two_folders_train_as_one_of_all_pairs(folders: list[Path], tmp_path: Path) -> None:
    joined = open_datasets(folders)
    whole = tmp_path / "whole"
    write_pairs(whole, dict(joined.data), dict(joined.info))
    write_labels(whole, "soft", joined.preference("soft"), joined.probabilities("soft"))
    settings = {"annotator": "soft", "labels.soft": True}

    expected = reward_data.load(training_of(whole, **settings))
    data = reward_data.load(training_of(*folders, **settings))

    # Of all arrays that decide the training; a resumed one compares them too.
    assert data.digests == expected.digests
    for name in ("messages", "ids", "train", "validation", "score"):
        np.testing.assert_array_equal(getattr(data, name), getattr(expected, name), strict=True)


def test_messages_of_all_datasets_are_explained(folders: list[Path]) -> None:
    data = read_messages(folders)

    counts = [read_messages([folder]).counts.sum() for folder in folders]
    assert data.counts.sum() == sum(counts) == 100
    assert data.ids.shape == (50, 2, 1)


def test_sub_sequences_of_different_lengths_are_refused(
    folders: list[Path], tmp_path: Path
) -> None:
    make_dataset(tmp_path / "long", pairs=10, length=2)

    with pytest.raises(ValueError, match="along dimension 2"):
        open_datasets([folders[0], tmp_path / "long"])


def test_labels_of_one_folder_alone_are_refused(folders: list[Path], tmp_path: Path) -> None:
    config = reward_config(",".join(map(str, folders)), annotator="lexicon")

    with pytest.raises(
        UserError, match=r"lexicon\.npy does not exist: this dataset has the annotations"
    ):
        train_reward.check(config, tmp_path / "reward")


def test_a_folder_that_is_named_twice_is_refused(folders: list[Path], tmp_path: Path) -> None:
    config = reward_config(f"{folders[0]},{folders[0]}/")

    with pytest.raises(UserError, match=r"^config\.dataset_dir=.*: must be different folders"):
        train_reward.check(config, tmp_path / "reward")
