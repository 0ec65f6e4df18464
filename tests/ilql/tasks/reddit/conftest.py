"""A few comments as published files, with scores, for the tests of the task and of its judges."""

from __future__ import annotations

import csv
import functools
import json

import pytest

from tests.envs import playing

recorded = functools.partial(playing.recorded, "reddit")

# Comment, score, parent; the first two in the file of liked ones.
ROWS = [("thanks a lot", 5, "here you are"), ("same words", 3, "one"), ("you idiot", -4, "two")]
ROWS += [("that is boring", 0, "three,\nwith a comma"), ("same words", -2, "four")]
SCORES = {"thanks a lot": 0, "same words": 1, "you idiot": 2, "that is boring": 1}


def write(folder, rows=ROWS, cut=2):
    for name, part in (
        ("comments_positive.csv", rows[:cut]),
        ("comments_negative.csv", rows[cut:]),
    ):
        with (folder / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["header"] * 11)
            for text, score, parent in part:
                writer.writerow([*"abcd", text, score, *"fghi", parent])


@pytest.fixture
def options(tmp_path):
    write(tmp_path)
    (tmp_path / "scores.json").write_text(json.dumps(SCORES))
    return {"folder": str(tmp_path), "scores": str(tmp_path / "scores.json"), "reward_scale": 1.0}


def returns(options):
    return [dialogue.total for dialogue in recorded(options)]
