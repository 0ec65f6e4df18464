"""What the published server of visual dialogue would reply, about synthetic pictures: six routes, form fields that hold JSON."""

from __future__ import annotations

import urllib.parse
from typing import Any

import numpy as np

from motif_jax.envs.scenes.speaking import Speaker, pairs
from motif_jax.envs.visdial.client import ANSWER, QUESTION, REWARDS
from motif_jax.support.files import parse_json

_KINDS = {
    route: (reward, step) for reward, routes in REWARDS.items() for route, step in zip(routes, (True, False))
}


class Replies:
    """From requests to replies, which depend on nothing but the request."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker

    def handle(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """See `support.http_server.Handle`."""
        route = urllib.parse.urlsplit(path).path
        if route not in (*_KINDS, ANSWER, QUESTION):
            return 404, {"error": f"there is no {route} here"}
        if method != "POST":
            return 405, {"error": f"{route} takes POST"}
        try:
            fields = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True))
            return 200, self._reply(route, fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
            return 400, {"error": what}

    def _reply(self, route: str, fields: dict[str, str]) -> Any:
        history, caption = parse_json(fields["history"]), fields["caption"]
        if not isinstance(history, list):
            raise ValueError("history must be a list")
        pairs(history)  # refuses what is none
        if route == QUESTION:
            return self._speaker.ask(history, caption)
        features = np.asarray(parse_json(fields["img_features"]), np.float64)
        if route == ANSWER:
            return self._speaker.answer(history, caption, features)
        reward, step = _KINDS[route]
        if step:
            return list(self._speaker.step(history, caption, features, reward))
        return self._speaker.value(history, caption, features, reward)
