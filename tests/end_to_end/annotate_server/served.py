"""What the server's replies are made of."""

from __future__ import annotations

NAME = "judge_msg_defaultgoal_default"
KEY = "sk-a-secret-that-nobody-may-see"


def reply(text, **more):
    """The body of a reply."""
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": message, **more}]}
