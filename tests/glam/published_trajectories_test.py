"""Published arrays of prompts and actions: read, written, and never unpickled."""

from __future__ import annotations

import numpy as np

from motif_jax.glam import published_trajectories as trajectories
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

PAIRS = [("Goal of the agent: go \n Action 0: ", 2), ("But de l'agent: aller à la clef", 5)]


def test_what_is_written_is_read(tmp_path):
    trajectories.write(tmp_path, "trajectories", iter(PAIRS), 2, max(len(prompt) for prompt, _ in PAIRS))
    prompts, actions = trajectories.read(tmp_path, "trajectories", 1)
    assert list(zip(prompts, actions, strict=True)) == PAIRS
    assert not [*tmp_path.glob(".*")]
    # Actions of several environments are taken step by step.
    texts, actions = trajectories.paths(tmp_path, "bot_trajectories", 3)
    np.save(texts, np.array(["a", "b", "c", "d"]))
    np.save(actions, np.array([[0, 1], [2, 3]]))
    assert trajectories.read(tmp_path, "bot_trajectories", 3) == (["a", "b", "c", "d"], [0, 1, 2, 3])


def test_objects_are_refused_and_other_things_named(tmp_path, record):
    texts, actions = trajectories.paths(tmp_path, "trajectories", 1)
    one, two, lines = np.array([1]), np.array(["a", "b"]), []
    cases = [
        (None, one),
        (two, one),
        (two, np.array([0.5, 1])),
        (np.array([1, 2]), np.arange(2)),
        (two, None),
        (two, np.array([True, False])),
        (np.array([None, "a"], object), one),
        (np.array(["é".encode(), b"\xff"]), np.array([[1], [2]], np.uint8)),
    ]
    for arrays in cases:
        for path, array in zip((texts, actions), arrays, strict=True):
            path.unlink(missing_ok=True)
            if array is not None:
                np.save(path, array, allow_pickle=True)
        lines += [outcome_text(trajectories.read, tmp_path, "trajectories", 1, folder=tmp_path)]
    texts.write_bytes(b"no array")
    lines += [outcome_text(trajectories.read, tmp_path, "trajectories", 1, folder=tmp_path)]
    trajectories.write(tmp_path, "bot", [], 0, 0)
    lines += [outcome_text(trajectories.read, tmp_path, "bot", 1), (tmp_path / "status.json").read_text()]
    assert_matches_packed_recording("published_trajectories", {"lines": "\n".join(lines)}, record)
