"""A server whose replies a test writes: the annotators that ask it, and the clock of their
pauses.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from motif_jax.core.verdicts import SINGLE
from motif_jax.motif.annotation.annotator import Question, make_annotator
from motif_jax.motif.annotation.openai_client import Reply
from tests.reward_fixtures import annotation_config

KEY = "sk-Zq/8Xw0Vb5%Kj7Tn"
ASKED = Question("0" * 32, ("You kill the newt!",), SINGLE)
GOOD = '("good_news": "Yes")'


def config(**values: Any) -> Any:
    return annotation_config(
        {"annotator": "openai", "openai.model": "judge", "openai.retries": 0, **values}
    )


def reply(content: Any, tokens: int | None = None, **more: Any) -> str:
    """The body of a reply with this content, and `more` fields of its choice."""
    counts = tokens and {"prompt_tokens": 100 + tokens, "completion_tokens": tokens}
    return json.dumps({"choices": [{"message": {"content": content}, **more}], "usage": counts})


class ScriptedServer:
    """Says `replies`, of a status (or an error to raise), a body and headers, one after the other;
    its clock moves by pauses alone.

    Attributes:
      requests: the bodies that were sent, in order.
      pauses: the seconds that annotators slept.
    """

    def __init__(self) -> None:
        self.replies: list[tuple[Any, ...]] = []
        self.requests: list[dict[str, Any]] = []
        self.pauses: list[float] = []
        self._now = 100.0
        self._annotators: list[Any] = []

    def start(self, **values: Any) -> Any:
        """An annotator that asks this server."""
        annotator = make_annotator(config(**values), SINGLE)
        annotator.start()
        self._annotators.append(annotator)
        return annotator

    def close(self) -> None:
        """Closes the annotators, each twice, as the second time there is nothing to do."""
        for annotator in self._annotators * 2:
            annotator.close()

    async def post(self, request: Any) -> Reply:
        self.requests.append(copy.deepcopy(dict(request)))
        status, body, *headers = self.replies.pop(0)
        if isinstance(status, Exception):
            raise status
        return Reply(status, dict(*headers), body.encode())

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 3))
        self._now += seconds

    def monotonic(self) -> float:
        return self._now
