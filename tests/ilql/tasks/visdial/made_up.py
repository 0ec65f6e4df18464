"""Published files of visual dialogue with few made-up dialogues, and an other side without a
server.
"""

from __future__ import annotations

import json

import h5py
import numpy as np

DIALOGUES = 3
# Of each dialogue the initial value and ten changes: the goal is reached at the third answer,
# never, and at the tenth.
CACHE = [[0.5, 0.1, 0.1, 0.2, *[0.0] * 7], [0.2, *[0.01] * 10], [0.8, *[0.0] * 9, 0.15]]
ANSWERS = [
    "yes",
    "No",
    "a red one",
    "I don't know",
    "now and then",
    "it is",
    "yes",
    "two",
    "here",
    "no",
]


def write(folder, count=DIALOGUES):
    """The options of a task that reads so many dialogues."""
    turns = [{"question": f"what {turn}", "answer": answer} for turn, answer in enumerate(ANSWERS)]
    dialogues = [{"caption": f"picture {number}", "dialog": turns} for number in range(count)]
    (folder / "d.json").write_text(json.dumps(dialogues))
    (folder / "r.json").write_text(
        json.dumps([CACHE[number % DIALOGUES] for number in range(count)])
    )
    with h5py.File(folder / "f.h5", "w") as file:
        file["images_train"] = np.arange(4.0 * count).reshape(count, 4)
    files = {"data": "d.json", "features": "f.h5", "reward_cache": "r.json"}
    return {key: str(folder / name) for key, name in files.items()}


class Scripted:
    """An other side that says what is recorded and is worth what `changes` say."""

    failures = 0

    def __init__(self, changes):
        self.changes = changes
        self.heard = []

    def step(self, history, caption, features):
        self.heard.append((history, caption, features))
        turn = len(history) // 2
        return ANSWERS[turn], self.changes[turn]

    def value(self, history, caption, features):
        return 0.25 if not history else len(history) / 100

    def ask(self, history, caption):
        return f"question {len(history) // 2}?"
