"""Requests to a server that speaks the OpenAI chat protocol, and what is wrong where none is answered.

aiohttp in place of the `openai` package: 0.2 ms of processor time a request in place of 1.7, of which two cores have few to spare
beside a training.
"""

from __future__ import annotations

import ssl
import urllib.parse
import urllib.request
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import aiohttp
import truststore

from motif_jax.annotation.replies import Rubbish
from motif_jax.support.errors import UserError
from motif_jax.support.files import parse_json

# Servers commonly close a connection that was idle for 5 seconds; one that is closed while a request is sent is lost.
_IDLE_SECONDS = 4.0
# So much of a refusal is read for what it blames.
_MOST_CHARACTERS = 10_000
_SCHEMES = ("http", "https")


class StatusError(Exception):
    """A server answers with an HTTP status that is no success.

    Attributes:
      status: of HTTP.
      headers: of the reply, whatever their case.

    Its text is what the server says.
    """

    def __init__(self, status: int, headers: Mapping[str, str], said: str) -> None:
        super().__init__(said[:_MOST_CHARACTERS] or f"HTTP {status}")
        self.status, self.headers = status, headers


class NoConnectionError(Exception):
    """A server cannot be reached, or is gone before its reply is complete."""


class ChatClient:
    """Sends chat requests to one server; made and used on one event loop, open within `async with`."""

    def __init__(self, base_url: str, key: str, timeout_seconds: float, most: int) -> None:
        """Connects to nothing yet.

        Args:
          base_url: such as http://HOST:8000/v1; the proxies of the environment (`https_proxy`, `no_proxy`) are used.
          key: sent with each request, unless `base_url` names a user.
          timeout_seconds: from the start of a request to the end of its reply.
          most: connections at a time.

        Raises:
          UserError: the environment's proxy is none for HTTP.
        """
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        # A user in the address is sent as such, and a request can have one of the two.
        named = urllib.parse.urlsplit(base_url).username is not None
        self._headers = {} if named else {"Authorization": f"Bearer {key}"}
        self._proxy = proxy_of(base_url)
        self._timeout_seconds, self._most = timeout_seconds, most
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ChatClient:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._most,
                keepalive_timeout=_IDLE_SECONDS,
                # The system's authorities, also where this Python's OpenSSL looks elsewhere for them.
                ssl=truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            ),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
            proxy=self._proxy,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def complete(self, request: Mapping[str, Any]) -> Any:
        """The body of the reply to a request, from JSON.

        Raises:
          StatusError: the server answers with another status.
          TimeoutError: the reply was not complete in time.
          NoConnectionError: there is no connection, or none any more.
          Rubbish: the reply is no JSON, or no HTTP.
        """
        assert self._session is not None
        try:
            async with self._session.post(self._url, json=request) as response:
                body = await response.read()
        except TimeoutError:
            raise
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise NoConnectionError(_cause(error)) from error
        except aiohttp.ClientError as error:
            raise Rubbish(_cause(error)) from error
        if not response.ok:
            raise StatusError(response.status, response.headers, body.decode(errors="replace"))
        try:
            return parse_json(body)
        except ValueError as error:
            raise Rubbish(f"no JSON: {body[:80].decode(errors='replace')!r}") from error


def _cause(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def is_address(url: str) -> bool:
    """Whether requests can be sent there."""
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def proxy_of(url: str) -> str | None:
    """The environment's proxy for an address; None where there is none, or the address is excepted from it.

    Raises:
      UserError: it is none for HTTP.
    """
    parts = urllib.parse.urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not is_address(proxy):
        raise UserError(
            f"the environment's proxy for {parts.scheme}://{parts.hostname} is no http://HOST:PORT: others cannot be used; "
            f"set {parts.scheme}_proxy, or except the server with no_proxy={parts.hostname}"
        )
    return proxy
