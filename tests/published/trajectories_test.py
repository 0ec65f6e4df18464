"""Published arrays of prompts and actions: read, written, and never unpickled."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.published import trajectories
from motif_jax.support.errors import UserError

PAIRS = [("Goal of the agent: go \n Action 0: ", 2), ("But de l'agent: aller à la clef", 5)]


def test_what_is_written_is_read(tmp_path):
    trajectories.write(tmp_path, "trajectories", iter(PAIRS), 2, max(len(prompt) for prompt, _ in PAIRS))
    prompts, actions = trajectories.read(tmp_path, "trajectories", 1)
    assert list(zip(prompts, actions, strict=True)) == PAIRS
    assert not [*tmp_path.glob(".*")]


def test_actions_of_several_environments_are_taken_step_by_step(tmp_path):
    texts, actions = trajectories.paths(tmp_path, "bot_trajectories", 3)
    np.save(texts, np.array(["a", "b", "c", "d"]))
    np.save(actions, np.array([[0, 1], [2, 3]]))
    assert trajectories.read(tmp_path, "bot_trajectories", 3) == (["a", "b", "c", "d"], [0, 1, 2, 3])


def test_objects_are_refused_and_other_things_named(tmp_path):
    texts, actions = trajectories.paths(tmp_path, "trajectories", 1)
    np.save(actions, np.array([1]))

    def refused(said):
        with pytest.raises(UserError, match=said):
            trajectories.read(tmp_path, "trajectories", 1)

    refused(r"prompts_1.npy does not exist")
    np.save(texts, np.array([None, "a"], object), allow_pickle=True)
    refused(r"prompts_1.npy holds Python objects")
    texts.write_bytes(b"no array")
    refused(r"prompts_1.npy (is not an array|holds)")
    np.save(texts, np.array(["a", "b"]))
    refused(r"has 2 prompts, .*actions_1.npy 1 actions")
    np.save(actions, np.array([0.5, 1]))
    refused("holds float64, not numbers of actions")
    np.save(texts, np.array([1, 2]))
    refused("prompts_1.npy holds int64, not texts")
    np.save(texts, np.array(["é".encode(), b"\xff"]))
    np.save(actions, np.array([1, 2]))
    assert trajectories.read(tmp_path, "trajectories", 1) == (["é", "\ufffd"], [1, 2])
