"""What the server's replies and the labels of a dataset are made of."""

from __future__ import annotations

import numpy as np

NAME = "judge_msg_defaultgoal_default"
KEY = "sk-a-secret-that-nobody-may-see"


def labels(dataset, name=NAME):
    return np.load(dataset / "preference" / f"{name}.npy")


def reply(text, **more):
    """The body of a reply."""
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": message, **more}]}
