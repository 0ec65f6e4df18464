"""Sends requests to a server with the OpenAI chat protocol, and names the causes of failures.

It uses aiohttp, not the `openai` package: a request takes 0.2 ms of processor time instead of 1.7,
which matters to a training on few cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import functools
import math
import re
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

import aiohttp

from motif_jax.core.files import parse_json
from motif_jax.motif.annotation.replies import MalformedReplyError

# Servers commonly close a connection that was idle for 5 seconds; one that is closed while a
# request is sent is lost.
_IDLE_SECONDS = 4.0
# Seconds to connect: a firewall that drops packets looks like a slow host.
_CONNECT_SECONDS = 30.0
# Most bytes of a reply: 100,000 tokens, all escaped, have about 3 million.
_MAX_BYTES = 4 << 20


class StatusError(Exception):
    """A server answers with an HTTP status that is not a success; the text is the whole body, which
    may repeat the key.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: str) -> None:
        super().__init__(body or f"HTTP {status}")
        self.status = status
        self.headers = headers


class NoConnectionError(Exception):
    """No connection to a server, or it ended before the reply was complete."""


class ChatClient:
    """Sends chat requests to one server; for one event loop, in which `aclose` ends it."""

    def __init__(self, base_url: str, key: str, timeout_seconds: float, concurrency: int) -> None:
        """`base_url`: such as http://HOST:8000/v1, reached by the proxies of the environment
        (`https_proxy`, `no_proxy`).
        """
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        # Compressed bodies would have no limit of their size once they are unpacked.
        self._headers = {"Accept-Encoding": "identity"}
        # aiohttp makes the Authorization header of a user in the address, and a request may have
        # only one.
        has_user = urllib.parse.urlsplit(base_url).username is not None
        if not has_user:
            self._headers["Authorization"] = f"Bearer {key}"
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=_CONNECT_SECONDS)
        self._concurrency = concurrency

    @functools.cached_property
    def _session(self) -> aiohttp.ClientSession:
        """Made on first use, as aiohttp wants it made in the event loop that uses it."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._concurrency, keepalive_timeout=_IDLE_SECONDS
            ),
            headers=self._headers,
            auto_decompress=False,
            timeout=self._timeout,
            trust_env=True,
        )

    async def aclose(self) -> None:
        await self._session.close()

    async def complete(self, request: Mapping[str, Any]) -> Any:
        """Sends a request and returns the body of the reply, parsed from JSON.

        Raises:
          TimeoutError: no complete reply within the time limit.
          NoConnectionError: the server cannot be reached, or the connection ended early.
          StatusError: the status is not a success. Redirects count, as the key must not be sent to
              another address.
          MalformedReplyError: the reply is not HTTP, not JSON, or too long.
        """
        try:
            response, body = await self.post(request)
        except aiohttp.ConnectionTimeoutError as error:
            raise NoConnectionError(f"no connection within {_CONNECT_SECONDS:g} s") from error
        # Before ClientConnectionError, which aiohttp's timeouts of sockets are as well.
        except TimeoutError:
            raise
        except aiohttp.ClientHttpProxyError as error:
            proxy = without_user(str(error.request_info.real_url))
            body_text = f"the proxy {proxy} answers with HTTP {error.status} {error.message}"
            raise StatusError(error.status, error.headers or {}, body_text) from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise NoConnectionError(_cause(error)) from error
        except aiohttp.ClientError as error:
            raise MalformedReplyError(_cause(error)) from error

        if not 200 <= response.status < 300:
            raise StatusError(response.status, response.headers, body.decode(errors="replace"))
        try:
            return parse_json(body)
        except ValueError as error:
            raise MalformedReplyError(f"no JSON: {body.decode(errors='replace')}") from error

    async def post(
        self, request: Mapping[str, Any], may_repeat: bool = True
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """The reply and its body; sends once more if the server closed the connection, which may
        have been an idle one.
        """
        try:
            async with self._session.post(
                self._url, json=request, allow_redirects=False
            ) as response:
                return response, await _body(response)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            # A connector's error: there never was a connection, so that none was idle.
            if not may_repeat or isinstance(error, aiohttp.ClientConnectorError):
                raise
        return await self.post(request, may_repeat=False)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The body, of at most _MAX_BYTES. To read one byte more shows whether it is longer, without
    trusting Content-Length.
    """
    try:
        await response.content.readexactly(_MAX_BYTES + 1)
    except asyncio.IncompleteReadError as end:
        return end.partial
    raise MalformedReplyError(f"a reply of more than {_MAX_BYTES} bytes")


def _cause(error: Exception) -> str:
    """The cause of an error, without text of the reply, keys and addresses."""
    if isinstance(error, aiohttp.ClientResponseError):
        return re.split("[:\n]", error.message)[0]
    if isinstance(error, aiohttp.ClientPayloadError):
        return re.split("[:\n]", str(error))[0]
    return str(error) or type(error).__name__


def is_address(url: str) -> bool:
    """Whether requests can be sent to a URL."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        is_ipv6 = ":" in host
        if not is_ipv6:
            # Raises UnicodeError, a ValueError, for a name that no host can have.
            host.encode("idna")
        return parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:
        return False


def without_user(url: str) -> str:
    """An address without name and password, for messages."""
    return re.sub(r"//[^/?#]*@", "//", url)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds of Retry-After (seconds or a date) or retry-after-ms; 0 if missing or unreadable."""
    milliseconds = headers.get("retry-after-ms", "")
    seconds_or_date = headers.get("retry-after", "")
    for text, unit in ((milliseconds, 1e-3), (seconds_or_date, 1.0)):
        with contextlib.suppress(ValueError):
            seconds = float(text) * unit
            if math.isfinite(seconds):
                return max(0.0, seconds)
    with contextlib.suppress(ValueError, OverflowError):
        date = email.utils.parsedate_to_datetime(seconds_or_date)
        return max(0.0, date.timestamp() - time.time())
    return 0.0
