"""Dialogues of one question and answer, and a made-up chat model to learn them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import made_up_judge

QUESTION = {"role": "user", "content": "You see a key"}
ANSWER = {"role": "assistant", "content": "You kill it"}
_DIALOGUES = 32
# Values of train_text's config for a run of seconds on these dialogues.
SMALL = {
    "task": "dialogues",
    "evaluate_every": 2,
    "batch_size": 8,
    "chunk_steps": 2,
    "evaluation_batches": 1,
    "num_devices": 1,
    "held_out.share": 0.25,
    "games.episodes": 0,
}


def write(folder: Path) -> dict[str, Any]:
    """Writes the model and the dialogues; returns the values of train_text's config that name them,
    and `SMALL`.
    """
    model = made_up_judge.write(folder / "model")
    line = json.dumps({"messages": [QUESTION, ANSWER], "reward": 1.0})
    path = folder / "dialogues.jsonl"
    path.write_text(f"{line}\n" * _DIALOGUES)
    return {**SMALL, "network.checkpoint": str(model), "data": str(path)}
