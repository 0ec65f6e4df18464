"""Options and files that visual dialogue cannot use are refused in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.tasks.visdial.task import VisDial
from tests.ilql.tasks.visdial import made_up

TURN = {"question": "b", "answer": "c"}
DIALOGUE = {"caption": "a", "dialog": [TURN]}
FORM = "must be a list of {caption, dialog: [{question, answer}]}"
HALF = "half of a character stands in it, surrogates not allowed"
URL = {"url": "http://127.0.0.1:1"}
CACHE_NEEDED = (
    "config.visdial.reward_cache='': must be a file: it says what answers were worth, and where dialogues end (with mode=10_stop or "
    "agent_stops reward_scale=0 wants none)"
)


@pytest.mark.parametrize(
    ("options", "kind", "policy", "message"),
    [
        ({"mode": "11_stop"}, "recorded", "", "config.visdial.mode='11_stop': must be one of env_stops, 10_stop, agent_stops"),
        ({"url": "ftp://host"}, "recorded", "", "config.visdial.url='ftp://host': must be the server's address with its scheme, such as http://127.0.0.1:5000"),
        ({"yes_no": "maybe"}, "recorded", "", "config.visdial.yes_no='maybe': must be one of none, hard, soft, conservative"),
        ({"mode": "10_stop", "yes_no": "soft"}, "recorded", "", "config.visdial.yes_no='soft': must be none with mode=10_stop, which is paid progress alone"),
        ({"data": ""}, "recorded", "", "config.visdial.data='': must be an existing file"),
        ({"additional": "nowhere"}, "recorded", "", "config.visdial.additional='nowhere': must be an existing file of dialogues (.parquet), or empty"),
        ({"mode": "env_stops", "reward_cache": ""}, "recorded", "", CACHE_NEEDED),
        ({"mode": "10_stop", "reward_cache": ""}, "recorded", "", CACHE_NEEDED),
        ({"mode": "agent_stops", "reward_cache": ""}, "recorded", "", CACHE_NEEDED),
        (URL, "chess", "", "config.kind=chess: must be one of recorded, games, reward_cache"),
        ({**URL, "features": ""}, "games", "remote", "config.visdial.features='': must be an existing file, .h5 or .npz"),
        (URL, "games", "own", "config.policy=own: must be remote, the server's own questioner"),
        ({}, "reward_cache", "", "config.visdial.url='': must be the server's address, such as http://127.0.0.1:5000"),
    ],
)  # fmt: skip
def test_an_option_that_visual_dialogue_cannot_use_is_refused(
    files, options, kind, policy, message
):
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        VisDial({**files, **options}).check(kind, policy)


def test_episodes_need_a_server(files):
    VisDial({**files, **URL}).check_episodes()

    with pytest.raises(UserError, match=r"config\.visdial\.url='': must be the server's address"):
        VisDial(files).check_episodes()


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


def test_features_of_another_format_are_refused(tmp_path, files):
    np.save(tmp_path / "one.npy", np.ones(2))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")

    with pytest.raises(UserError, match="one array, not an archive of them"):
        VisDial({**files, "features": str(tmp_path / "one.npz")}).check("recorded", "")
    with pytest.raises(UserError, match="file signature not found"):
        VisDial({**files, "features": files["data"]}).check("recorded", "")


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"caption": "a", "dialog": [{"question": "b"}]}], f"dialogue 0 is invalid (no 'answer'): {FORM}"),
        ([DIALOGUE, {**DIALOGUE, "caption": "a \ud83d"}], f"dialogue 1 is invalid ({HALF}): {FORM}"),
        ([DIALOGUE, {**DIALOGUE, "dialog": [{**TURN, "answer": "\ude00"}]}], f"dialogue 1 is invalid ({HALF}): {FORM}"),
        ([], f"{FORM}, found list"),
        ({}, f"{FORM}, found dict"),
        ([{"caption": 1, "dialog": []}], f"dialogue 0 is invalid (1 is not a text): {FORM}"),
    ],
    ids=["no answer", "half a caption", "half an answer", "empty", "object", "number"],
)  # fmt: skip
def test_dialogues_of_another_form_are_refused(files, content, message):
    Path(files["data"]).write_text(json.dumps(content))

    with pytest.raises(
        UserError, match=re.escape(f"config.visdial.data={files['data']}: {message}")
    ):
        VisDial(files).check("recorded", "")


def test_a_damaged_file_of_dialogues_is_refused(files):
    Path(files["data"]).write_text("[")

    with pytest.raises(
        UserError, match=r"is damaged \(no JSON: .*\): config\.visdial\.data takes a JSON file"
    ):
        VisDial(files).check("recorded", "")
