"""Every field of every golden file is named by a test that opens the file: what no test reads holds
nothing.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import GOLDEN, REPOSITORY

TESTS = REPOSITORY / "tests"
# Networks' tensors are compared by name, all of them: `golden_numbers.assert_golden` sees to it.
SUMMARIES = ("l2", "sum", "head8")
# Objects whose keys are what the table is about: tokens, words.
TABLES = ("vocab", "information_gain", "word_lists")
NOT_COMPARED = {
    "about": "a comment",
    "stairs_message": "a rule in words, for the tests of the tasks",
    "T": "the length, which the arrays' shapes say too",
    "N": "the number of rollouts, which the arrays' shapes say too",
    "policy": "who played an episode",
    "bot_error": "where the published bot failed; the one here is minigrid's",
    "bot_failures": "as bot_error",
    "empty": "that a game has no action, which its text shows",
    "log_probs": "made up for the published collector, which computes nothing from them",
    "fields": "where the fields are described",
    "num_frames": "steps times environments, which the arrays' shapes say too",
    "flat_action": "the actions again, in the order of environments",
    "flat_value": "the values again, in the order of environments",
    "mask_before": "what `dones` says too",
    "stored_masks": "what `dones` says too",
    "final_mask": "what `dones` says too",
    "tty_cursor": "published as an input; neither the picture nor the features depend on it",
}


def fields(name: str) -> set[str]:
    """The names in a golden file: parts of an archive's keys, keys of all objects that are no table
    by name.
    """
    if name.endswith(".npz"):
        with np.load(GOLDEN / name) as file:
            keys = [key for key in file.files if not key.endswith(SUMMARIES)]
        return {part for key in keys for part in key.split("/")}

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (key for key in value if not key.isdigit())
            for key, inner in value.items():
                yield from walk(inner) if key not in TABLES else ()
        for inner in value if isinstance(value, list) else ():
            yield from walk(inner)

    return set(walk(json.loads((GOLDEN / name).read_text(encoding="utf-8"))))


@functools.cache
def strings(path: Path) -> str:
    """All text that a module's code holds, its docstrings left out, and that of the test helpers it
    imports.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    names = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            names.append(node.value)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            helper = REPOSITORY / f"{(node.module or '').replace('.', '/')}.py"
            names.append(strings(helper) if helper.is_file() else "")
    return "\n".join(names)


NAMES = sorted(path.name for path in GOLDEN.iterdir() if path.suffix in (".npz", ".json"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("shapes.json")])
def test_each_field_is_named_by_a_test_opening_its_file(name: str) -> None:
    modules = [path for path in TESTS.rglob("*_test.py") if path != Path(__file__)]
    readers = [text for text in map(strings, modules) if name in text]
    words = set(re.findall(r"\w+", "\n".join(readers)))
    assert fields(name) - words - set(NOT_COMPARED) == set()
