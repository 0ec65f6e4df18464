"""Limits the requests in flight to a server: fewer when it is overloaded, slowly more again."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import email.utils
import math
import time
from collections.abc import AsyncIterator, Mapping

# A server that asks for more patience than this ends the run: it is continued later.
LONGEST_RETRY_AFTER_SECONDS = 3600.0


class Traffic:
    """Admits the requests of one event loop at a time, and counts what was sent again or refused.

    The limit is halved when a server says that it has too much to do, once for all requests that were on their way then, and
    grows by one for as many answers as it holds (additive increase, multiplicative decrease).

    Attributes:
      limit: requests that may be on their way together, at least 1.
      running: requests on their way.
      answered, refused: requests that were answered, questions that the server will not answer.
      retries: cause -> how often a request was sent again for it.
      last_cause: of the newest of these; '' without any.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = float(most)
        self.running = self.answered = self.refused = 0
        self.retries: collections.Counter[str] = collections.Counter()
        self.last_cause = ""
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._quiet_until = self._slowed = -math.inf

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """Waits until a request may be sent; yields the time of that."""
        while (wait := self._quiet_until - time.monotonic()) > 0 or self.running >= int(self.limit):
            if wait > 0:
                await asyncio.sleep(wait)
            else:
                self._waiting.append(asyncio.get_running_loop().create_future())
                await self._waiting[-1]
        self.running += 1
        try:
            yield time.monotonic()
        finally:
            self.running -= 1
            self._wake()

    def _wake(self) -> None:
        free = int(self.limit) - self.running
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():  # its task may have been cancelled
                turn.set_result(None)
                free -= 1

    def quiet_seconds(self) -> float:
        """For how long from now the server wants to be left alone; 0 if it does not. Any thread may ask."""
        return max(0.0, self._quiet_until - time.monotonic())

    def answer(self) -> None:
        """Takes note of an answer."""
        self.answered += 1
        self.limit = min(self._most, self.limit + 1 / self.limit)

    def again(self, cause: str) -> None:
        """Takes note of a request that will be sent again."""
        self.retries[cause] += 1
        self.last_cause = cause

    def too_many(self, sent: float, quiet_seconds: float = 0.0) -> None:
        """Takes note that the server has too much to do; it is left alone for `quiet_seconds` if it asked for that."""
        now = time.monotonic()
        self._quiet_until = max(self._quiet_until, now + quiet_seconds)
        if sent > self._slowed:
            self._slowed = now
            self.limit = max(1.0, self.limit / 2)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait: Retry-After in seconds or as a date, retry-after-ms; 0 without or if unreadable."""
    asked = headers.get("retry-after", "")
    for text, unit in ((headers.get("retry-after-ms", ""), 1e-3), (asked, 1.0)):
        with contextlib.suppress(ValueError):
            if math.isfinite(seconds := float(text) * unit):
                return max(0.0, seconds)
    with contextlib.suppress(ValueError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(asked).timestamp() - time.time())
    return 0.0
