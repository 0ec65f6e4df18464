"""The collect stage through its real flags: undisturbed, and killed at any moment."""

from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.motif.pairs import chunks
from motif_jax.motif.pairs.dataset import PairsDataset
from tests import processes
from tests.reward_fixtures import launch

SMALL = ("--config.num_pairs=400", "--config.glyphs=True", "--config.length=2")


def digests(folder):
    return PairsDataset.open(folder).meta["digests"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A dataset that was collected without disturbance by one process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    launch("collect", folder, *SMALL, "--config.workers=1")
    return folder


def test_sub_sequences_are_distinct_and_of_their_episode(undisturbed):
    dataset = PairsDataset.open(undisturbed, need=("glyphs",))
    glyphs = dataset.data["glyphs"]
    assert (glyphs.shape, str(glyphs.dtype)) == ((400, 2, 2, 21, 79), "int16")
    episodes = {
        row["episode"]: row
        for row in map(json.loads, (undisturbed / "episodes.jsonl").read_text().splitlines())
    }
    places = np.stack([dataset.info["episode"], dataset.info["step"]], -1).reshape(-1, 2)
    assert len(np.unique(places, axis=0)) == 800
    assert sorted(episodes) == list(range(dataset.meta["episodes"]))
    for (episode, step), score in zip(places, dataset.info["score"].reshape(-1)):
        assert 0 <= step <= episodes[episode]["length"] - 2
        assert score >= 0
    drawn = np.bincount(places[:, 0], minlength=len(episodes))
    limits = [max(1, int(0.1 * (episodes[e]["length"] // 2))) for e in range(len(episodes))]
    assert (drawn <= limits).all()
    status = np.asarray(dataset.data["blstats"])
    assert (status[:, :, -1, 9] == dataset.info["score"]).all()
    # Neighbours in time are not neighbours in the dataset: the two of a pair are mostly of
    # different episodes.
    assert np.mean(dataset.info["episode"][:, 0] != dataset.info["episode"][:, 1]) > 0.8


def test_killed_again_and_again(undisturbed, tmp_path):
    """SIGKILL after every few episodes and when the arrays are begun, with 1 and with 2
    processes.
    """
    staging = tmp_path / ".staging"
    log = tmp_path.with_name("log")

    def start(attempt):
        return processes.launch(
            tmp_path, "collect.py:smoke", *SMALL, f"--config.workers={1 + attempt % 2}", log=log
        )

    def progress():
        return len(chunks.scan(staging / "chunks")) + 9 * (staging / "assembled").exists()

    processes.killed_often(start, progress, 9, tmp_path, least=3)
    assert digests(tmp_path) == digests(undisturbed)
    assert (tmp_path / "episodes.jsonl").read_text() == (undisturbed / "episodes.jsonl").read_text()
