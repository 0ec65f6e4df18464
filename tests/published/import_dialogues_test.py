from __future__ import annotations

import json

import pytest

from motif_jax.core.errors import UserError
from motif_jax.published import imports as stage
from tests.reward_fixtures import load_config

# Dialogues as a file of one's own has them.
LINES = [
    {"sequence": [["Wordle:\n", 0], ["crane\n", 1], ["b b y\n", False], ["moist\n", True]], "reward": [0, -1, 0, 0.5], "done": True},
    {"sequence": [["hello", True], ["you", True]], "reward": [1, 2.0], "done": False, "id": 7},
    {"sequence": [["a", False], ["b", True], ["c", False]], "reward": [3], "done": False},
]  # fmt: skip


def config_of(path, **values):
    return load_config("import", "dialogues", {"file": str(path), **values})


def test_dialogues_from_elsewhere_are_not_replaced(tmp_path):
    (tmp_path / "talk.jsonl").write_text(json.dumps(LINES[0]))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "dialogues.parquet").write_text("")

    with pytest.raises(UserError, match="not imported here"):
        stage.run(config_of(tmp_path / "talk.jsonl"), tmp_path / "full")
