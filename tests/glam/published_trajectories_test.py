"""Published arrays of prompts and actions: read, written, and never unpickled."""

from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.glam import trajectories

PAIRS = [("Goal of the agent: go \n Action 0: ", 2), ("But de l'agent: aller à la clef", 5)]


def test_what_is_written_is_read(tmp_path):
    trajectories.write_published(
        tmp_path, "trajectories", iter(PAIRS), 2, max(len(prompt) for prompt, _ in PAIRS)
    )
    prompts, actions = trajectories.read_published(tmp_path, "trajectories", 1)
    assert list(zip(prompts, actions, strict=True)) == PAIRS
    assert not [*tmp_path.glob(".*")]
    # Actions of several environments are taken step by step.
    texts, actions = trajectories.published_paths(tmp_path, "bot_trajectories", 3)
    np.save(texts, np.array(["a", "b", "c", "d"]))
    np.save(actions, np.array([[0, 1], [2, 3]]))
    assert trajectories.read_published(tmp_path, "bot_trajectories", 3) == (
        ["a", "b", "c", "d"],
        [0, 1, 2, 3],
    )


TWO = np.array(["a", "b"])


def save(folder, prompts, actions):
    for path, array in zip(
        trajectories.published_paths(folder, "trajectories", 1), (prompts, actions), strict=True
    ):
        if array is not None:
            np.save(path, array, allow_pickle=True)


def test_a_file_that_is_no_array_is_never_unpickled(tmp_path):
    save(tmp_path, TWO, np.arange(2))
    trajectories.published_paths(tmp_path, "trajectories", 1)[0].write_bytes(b"no array")
    with pytest.raises(ValueError, match="allow_pickle="):
        trajectories.read_published(tmp_path, "trajectories", 1)


def test_bytes_are_read_as_utf_8(tmp_path):
    save(tmp_path, np.array(["\u00e9".encode(), b"\xff"]), np.array([[1], [2]], np.uint8))
    assert trajectories.read_published(tmp_path, "trajectories", 1) == (
        ["\u00e9", "\ufffd"],
        [1, 2],
    )


def test_no_pairs_are_written_and_read(tmp_path):
    trajectories.write_published(tmp_path, "bot", [], 0, 0)
    assert trajectories.read_published(tmp_path, "bot", 1) == ([], [])
    assert json.loads((tmp_path / "status.json").read_text()) == {"k": 1, "nbr_frames": 0}
