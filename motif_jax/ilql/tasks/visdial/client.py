"""Client of the published visual dialogue server over HTTP: routes with form fields and JSON
answers.

A request holds the whole dialogue, so a failed one can be repeated safely.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json

# The dialogue in the server's form: {"speaker": "question" or "answer", "text": ...}.
History = Sequence[Mapping[str, str]]
# Kind of reward -> (route for answers, route for the value of a talk).
REWARDS = {"rank": ("/step_rank", "/fetch_reward_rank"), "distance": ("/step", "/fetch_reward")}
QUESTION = "/fetch_q_bot_response"
_ROUTES = (*REWARDS["rank"], *REWARDS["distance"], "/fetch_a_bot_response", QUESTION)
_GENERATION = {"inference": "greedy", "beamSize": 1}
_LONGEST_WAIT = 10.0
_MAX_BYTES = 1 << 20
_T = TypeVar("_T")


def base_url(url: str) -> str:
    """A server's address without a route."""
    # An address with a route, such as http://127.0.0.1:5000/step_rank, is the server's as well.
    base = url.rstrip("/")
    return next((base.removesuffix(route) for route in _ROUTES if base.endswith(route)), base)


class VisDialServer:
    """The side that sees the picture and answers, a server at a `base_url`; counts `failures` of
    requests.

    A request may take `timeout` seconds; `wait` passes before the second attempt, and is doubled
    before each further one.
    """

    def __init__(
        self,
        url: str,
        reward: str = "rank",
        timeout: float = 60.0,
        attempts: int = 6,
        wait: float = 0.5,
    ) -> None:
        self._url = url
        self._timeout = timeout
        self._attempts = attempts
        self._wait = wait
        self._step, self._value = REWARDS[reward]
        self.failures = 0

    def step(self, history: History, caption: str, features: np.ndarray) -> tuple[str, float]:
        """The answer to the last question, and its gain of the picture's rank."""
        more = {"img_features": features.tolist(), "generation_kwargs": _GENERATION}
        return self._ask(self._step, _pair, history, caption, more)

    def value(self, history: History, caption: str, features: np.ndarray) -> float:
        """The gain of the picture's rank by the last answer; the initial rank for an empty
        history.
        """
        return self._ask(
            self._value, _number, history, caption, {"img_features": features.tolist()}
        )

    def ask(self, history: History, caption: str) -> str:
        """The next question of its own questioner, which does not see the picture."""
        return self._ask(QUESTION, _text, history, caption, {"generation_kwargs": _GENERATION})

    def _ask(
        self,
        route: str,
        read: Callable[[Any], _T],
        history: History,
        caption: str,
        more: Mapping[str, Any],
    ) -> _T:
        # A form, whose fields are JSON but for the caption.
        fields = {"history": json.dumps(list(history)), "caption": caption}
        fields |= {name: json.dumps(value) for name, value in more.items()}
        data = urllib.parse.urlencode(fields).encode()
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(min(self._wait * 2 ** (attempt - 1), _LONGEST_WAIT))
            try:
                return read(parse_json(self._post(route, data)))
            except urllib.error.HTTPError as error:
                last = f"HTTP status {error.code}"
                error.close()
                # The request itself is refused; a time-out or too many requests may pass.
                if 400 <= error.code < 500 and error.code not in (408, 429):
                    self.failures += 1
                    message = (
                        f"{self._url}{route} says {last}: is this a server of visual dialogue?"
                    )
                    raise UserError(message) from None
            except ValueError as error:
                last = f"no answer of the protocol ({error})"
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", None) or error
                late = isinstance(reason, TimeoutError)
                last = f"no answer in {self._timeout:g} s" if late else f"no answer ({reason})"
            self.failures += 1
        raise UserError(
            f"{self._url}{route} failed {self._attempts} times, the last time with {last}: start the server again, then give the "
            "same command to continue"
        )

    def _post(self, route: str, data: bytes) -> bytes:
        """The body of an answer, which has to arrive completely within the time limit."""
        deadline = time.monotonic() + self._timeout
        with urllib.request.urlopen(f"{self._url}{route}", data, timeout=self._timeout) as reply:
            body = b""
            # `timeout` is that of one read, which a server that sends byte by byte never exceeds.
            while part := reply.read1(1 << 16):
                body += part
                if time.monotonic() > deadline:
                    raise TimeoutError
                if len(body) > _MAX_BYTES:
                    raise ValueError(f"more than {_MAX_BYTES:,} bytes")
            return body


def _number(value: Any) -> float:
    if not checks.is_finite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _pair(value: Any) -> tuple[str, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r} is not [answer, progress]")
    return _text(value[0]), _number(value[1])
