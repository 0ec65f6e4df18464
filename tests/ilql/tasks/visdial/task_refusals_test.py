"""Options and files that visual dialogue cannot use are refused in one line."""

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


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("train", "has 2 pictures of train, .* has 3 dialogues: they do not belong together"),
        ("val", r"images_val must have a row for each picture, its shape is \[3\]"),
        ("test", "has no array images_test, which the split needs"),
    ],
)
def test_features_that_do_not_fit_the_dialogues_are_refused(tmp_path, files, split, message):
    path = tmp_path / "two.h5"
    with h5py.File(path, "w") as file:
        file["images_train"] = np.zeros((2, 4))
        file["images_val"] = np.zeros(3)

    with pytest.raises(UserError, match=message):
        VisDial({**files, "features": str(path), "split": split}).check("recorded", "")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (None, "holds 2 dialogues, must have the 3 of the dialogues' file"),
        (
            [0.5, 0.1],
            "dialogue 2 must have 11 finite numbers, the initial value and one for each answer",
        ),
        ([0.5, *[float("nan")] * 10], "dialogue 2 must have 11 finite numbers"),
        ([10**400] * 11, "dialogue 2 must have 11 finite numbers"),
    ],
    ids=["missing", "short", "nan", "huge"],
)
def test_a_reward_cache_that_does_not_fit_is_refused(tmp_path, files, row, message):
    rows = made_up.CACHE[:2] + ([] if row is None else [row])
    (tmp_path / "r.json").write_text(json.dumps(rows))

    with pytest.raises(
        UserError, match=rf"config\.visdial\.reward_cache={files['reward_cache']}: {message}"
    ):
        VisDial(files).check("recorded", "")
