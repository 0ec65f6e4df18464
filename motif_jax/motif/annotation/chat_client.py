"""Sends requests to a server with the OpenAI chat protocol, and names the causes of failures.

It uses aiohttp, not the `openai` package: a request takes 0.2 ms of processor time instead of 1.7, which matters to a training
on few cores.
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
from motif_jax.motif.annotation.replies import Rubbish

# Servers commonly close a connection that was idle for 5 seconds; one that is closed while a request is sent is lost.
_IDLE_SECONDS = 4.0
# Seconds to connect: a firewall that drops packets looks like a slow host.
_CONNECT_SECONDS = 30.0
# Most bytes of a reply: 100,000 tokens, all escaped, have about 3 million.
_MAX_BYTES = 4 << 20


class StatusError(Exception):
    """A server answers with an HTTP status that is no success; the text is the whole body, which may repeat the key."""

    def __init__(self, status: int, headers: Mapping[str, str], body: str) -> None:
        super().__init__(body or f"HTTP {status}")
        self.status, self.headers = status, headers


class NoConnectionError(Exception):
    """No connection to a server, or it ended before the reply was complete."""


class ChatClient:
    """Sends chat requests to one server; for one event loop, in which `aclose` ends it."""

    def __init__(self, base_url: str, key: str, timeout_seconds: float, concurrency: int) -> None:
        """`base_url`: such as http://HOST:8000/v1, reached by the proxies of the environment (`https_proxy`, `no_proxy`)."""
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        # A user in the address becomes the Authorization header, which a request has once.
        named = urllib.parse.urlsplit(base_url).username is not None
        self._headers = {} if named else {"Authorization": f"Bearer {key}"}
        self._headers["Accept-Encoding"] = "identity"  # unpacked bodies would have no size limit
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=_CONNECT_SECONDS)
        self._concurrency = concurrency

    @functools.cached_property
    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._concurrency, keepalive_timeout=_IDLE_SECONDS),
            headers=self._headers,
            auto_decompress=False,
            timeout=self._timeout,
            trust_env=True,
        )

    async def aclose(self) -> None:
        await self._session.close()

    async def complete(self, request: Mapping[str, Any]) -> Any:
        """The body of the reply to a request, from JSON. Raises TimeoutError and NoConnectionError.

        StatusError: another status; redirects count, as a key must not follow them. Rubbish: the reply is not JSON, or not HTTP.
        """
        try:
            response, body = await self._post(request)
        except aiohttp.ConnectionTimeoutError as error:
            raise NoConnectionError(f"no connection within {_CONNECT_SECONDS:g} s") from error
        except TimeoutError:
            raise
        except aiohttp.ClientHttpProxyError as error:
            proxy = without_user(str(error.request_info.real_url))
            said = f"the proxy {proxy} answers with HTTP {error.status} {error.message}"
            raise StatusError(error.status, error.headers or {}, said) from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise NoConnectionError(_cause(error)) from error
        except aiohttp.ClientError as error:
            raise Rubbish(_cause(error)) from error
        if not 200 <= response.status < 300:
            raise StatusError(response.status, response.headers, body.decode(errors="replace"))
        try:
            return parse_json(body)
        except ValueError as error:
            raise Rubbish(f"no JSON: {body.decode(errors='replace')}") from error

    async def _post(
        self, request: Mapping[str, Any], again: bool = True
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """The reply; tries again once if the server closed the connection, which may have been idle."""
        try:
            async with self._session.post(self._url, json=request, allow_redirects=False) as response:
                return response, await _body(response)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if not again or isinstance(error, aiohttp.ClientConnectorError):
                raise
        return await self._post(request, again=False)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    try:
        await response.content.readexactly(_MAX_BYTES + 1)
    except asyncio.IncompleteReadError as end:
        return end.partial
    raise Rubbish(f"a reply of more than {_MAX_BYTES} bytes")


def _cause(error: Exception) -> str:
    """The cause of an error, without text of the reply, keys and addresses."""
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError):
        said = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
        return re.split("[:\n]", said)[0]
    return str(error) or type(error).__name__


def is_address(url: str) -> bool:
    """Whether requests can be sent to a URL."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        if ":" not in host:  # IPv6
            host.encode("idna")
        return parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:
        return False


def without_user(url: str) -> str:
    """An address without name and password, for messages."""
    return re.sub(r"//[^/?#]*@", "//", url)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds of Retry-After (seconds or a date) or retry-after-ms; 0 if missing or unreadable."""
    asked = headers.get("retry-after", "")
    for text, unit in ((headers.get("retry-after-ms", ""), 1e-3), (asked, 1.0)):
        with contextlib.suppress(ValueError):
            if math.isfinite(seconds := float(text) * unit):
                return max(0.0, seconds)
    with contextlib.suppress(ValueError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(asked).timestamp() - time.time())
    return 0.0
