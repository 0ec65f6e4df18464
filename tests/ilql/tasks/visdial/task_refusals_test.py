"""Files of other dialogues are refused."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.tasks.visdial.task import VisDial
from tests.ilql.tasks.visdial import made_up


def test_imitation_needs_no_rewards(files):
    options = {"mode": "10_stop", "reward_cache": "", "reward_scale": 0.0}

    VisDial({**files, **options}).check("recorded", "")


def test_features_of_other_dialogues_are_refused(tmp_path, files):
    path = tmp_path / "two.h5"
    with h5py.File(path, "w") as file:
        file["images_train"] = np.zeros((2, 4))

    message = "has 2 pictures of train, .* has 3 dialogues: they do not belong together"
    with pytest.raises(UserError, match=message):
        VisDial({**files, "features": str(path), "split": "train"}).check("recorded", "")


def test_a_reward_cache_of_fewer_answers_is_refused(tmp_path, files):
    (tmp_path / "r.json").write_text(json.dumps([*made_up.CACHE[:2], [0.5, 0.1]]))

    message = "dialogue 2 must have 11 numbers, the initial value and one for each answer"
    with pytest.raises(
        UserError, match=rf"config\.visdial\.reward_cache={files['reward_cache']}: {message}"
    ):
        VisDial(files).check("recorded", "")
