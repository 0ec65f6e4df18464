"""JSON lines of LMRL-Gym and published games as dialogues: what is read, what is refused, and the stage."""

from __future__ import annotations

import json

import pytest

from motif_jax.datasets.dialogues import json_lines
from motif_jax.datasets.dialogues.dialogue import Dialogue
from motif_jax.stages import imports as stage
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config

LINES = [
    {"sequence": [["Wordle:\n", 0], ["crane\n", 1], ["b b y\n", False], ["moist\n", True]], "reward": [0, -1, 0, 0.5], "done": True},
    {"sequence": [["hello", True], ["you", True]], "reward": [1, 2.0], "done": False, "id": 7},
    {"sequence": [["a", False], ["b", True], ["c", False]], "reward": [3], "done": False},
]  # fmt: skip
FOUND = [
    Dialogue(("Wordle:\n", "crane\n", "b b y\n", "moist\n"), (None, -1.0, None, 0.5), True, {}),
    Dialogue(("hello", "you"), (1.0, 2.0), False, {"id": 7}),
    Dialogue(("a", "b", "c"), (None, 3.0, None), False, {}),
]


def config_of(path, **values):
    return load_config("import_dialogues", "", {"file": str(path), **values})


def test_lines_are_read_in_their_order(tmp_path):
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, LINES)))
    assert [one for some in json_lines.read(tmp_path / "train.jsonl") for one in some] == FOUND


@pytest.mark.parametrize(
    "line",
    ["{", '{"sequence": [["a", 1]], "reward": [NaN], "done": true}', '{"sequence": [["a", 0]], "reward": [1], "done": true}', '{"sequence": [["cut \\ud83d", 1]], "reward": [1], "done": true}'],
)  # fmt: skip
def test_a_line_that_is_no_dialogue(tmp_path, line):
    path = tmp_path / "train.jsonl"
    path.write_text(f"{json.dumps(LINES[1])}\n{line}\n")
    with pytest.raises(UserError, match="line 2 is not a dialogue"):
        list(json_lines.read(path))


def test_files_that_are_none(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    config = config_of(tmp_path / "empty.jsonl")
    stage.check(config, tmp_path / "run")
    with pytest.raises(UserError, match="holds no dialogues"):
        stage.run(config, tmp_path / "run")
    (tmp_path / "a.txt").write_text("")
    for path in (tmp_path / "a.txt", tmp_path / "none.jsonl"):
        with pytest.raises(UserError, match=r"config\.file="):
            stage.check(config_of(path), tmp_path / "other")
    (tmp_path / "a.pkl").write_bytes(b"cos\nsystem\n.")
    with pytest.raises(UserError, match="not a pickle of published Wordle games"):
        stage.run(config_of(tmp_path / "a.pkl"), tmp_path / "third")
    with pytest.raises(UserError, match=r"config\.words="):
        stage.check(config_of(tmp_path / "a.pkl", words="nowhere"), tmp_path / "other")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "dialogues.parquet").write_text("")
    with pytest.raises(UserError, match="not imported here"):
        stage.check(config_of(tmp_path / "a.pkl"), tmp_path / "full")
