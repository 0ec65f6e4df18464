"""Requests to a server with the OpenAI chat protocol, and the causes of failures.

aiohttp in place of the `openai` package: 0.2 ms of processor time a request in place of 1.7, of which two cores have few to spare
beside a training.
"""

from __future__ import annotations

import re
import ssl
import urllib.parse
import zlib
from collections.abc import Mapping
from types import SimpleNamespace, TracebackType
from typing import Any

import aiohttp

from motif_jax.labels.addresses import proxy_of, without_user
from motif_jax.labels.replies import Rubbish
from motif_jax.support.files import parse_json

# Servers commonly close a connection that was idle for 5 seconds; one that is closed while a request is sent is lost.
_IDLE_SECONDS = 4.0
# A host that takes no connection for so long is not there: a firewall that swallows everything looks like that.
_CONNECT_SECONDS = 30.0
# A reply of more bytes, unpacked, is none: 100,000 tokens, each of them escaped, have some 3 million.
_MOST_BYTES = 4 << 20
# Of zlib: what begins as gzip or zlib begin.
_PACKED = 47


class StatusError(Exception):
    """A server answers with an HTTP status that is not a success.

    Attributes:
      status: of HTTP.
      headers: of the reply, whatever their case.

    Its text is all that the server says, with the key where the server repeats it.
    """

    def __init__(self, status: int, headers: Mapping[str, str], said: str) -> None:
        super().__init__(said or f"HTTP {status}")
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
        self._headers["Accept-Encoding"] = "gzip"
        self._proxy = proxy_of(base_url)
        # The authorities take 25 ms: they are read once, and not for plain HTTP.
        self._secured = any(url.startswith("https:") for url in (base_url.lower(), self._proxy or ""))
        self._timeout_seconds, self._most = timeout_seconds, most
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ChatClient:
        reuse = aiohttp.TraceConfig()
        reuse.on_connection_reuseconn.append(_reused)
        limits = aiohttp.ClientTimeout(total=self._timeout_seconds, sock_connect=_CONNECT_SECONDS)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._most,
                keepalive_timeout=_IDLE_SECONDS,
                ssl=ssl.create_default_context() if self._secured else True,
            ),
            headers=self._headers,
            auto_decompress=False,  # it has no limit
            timeout=limits,
            proxy=self._proxy,
            trace_configs=[reuse],
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
          StatusError: the server, or the proxy, answers with another status; also where it sends the request on to another address,
            to which a key should not follow by itself.
          TimeoutError: the reply was not complete in time.
          NoConnectionError: there is no connection, or none any more.
          Rubbish: the reply is no JSON, or no HTTP.
        """
        try:
            response, body = await self._post(request)
        except aiohttp.ConnectionTimeoutError as error:
            raise NoConnectionError(f"no connection within {_CONNECT_SECONDS:g} s") from error
        except TimeoutError:
            raise
        except aiohttp.ClientHttpProxyError as error:
            raise self._refused_by_proxy(error) from None
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

    async def _post(self, request: Mapping[str, Any]) -> tuple[aiohttp.ClientResponse, bytes]:
        """The reply to a request, sent again if the server had closed the connection since the last one."""
        assert self._session is not None
        while True:
            connection = SimpleNamespace(reused=False)
            try:
                async with self._session.post(
                    self._url, json=request, allow_redirects=False, trace_request_ctx=connection
                ) as response:
                    return response, await _body(response)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not connection.reused:
                    raise

    def _refused_by_proxy(self, error: aiohttp.ClientHttpProxyError) -> Exception:
        said = f"the proxy {without_user(self._proxy or '')} answers with HTTP {error.status} {error.message}"
        return (
            NoConnectionError(said)
            if error.status >= 500
            else StatusError(error.status, error.headers or {}, said)
        )


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The unpacked body of a reply; Rubbish if it is too long."""
    packed = response.headers.get("Content-Encoding", "").lower() in ("gzip", "x-gzip", "deflate")
    unpacking = zlib.decompressobj(_PACKED) if packed else None
    body = bytearray()
    async for chunk in response.content.iter_any():
        try:
            body += chunk if unpacking is None else unpacking.decompress(chunk, _MOST_BYTES + 1 - len(body))
        except zlib.error as error:
            raise Rubbish(f"a reply that cannot be unpacked: {error}") from None
        if len(body) > _MOST_BYTES:
            raise Rubbish(f"a reply of more than {_MOST_BYTES} bytes")
    return bytes(body)


async def _reused(
    session: aiohttp.ClientSession, context: Any, params: aiohttp.TraceConnectionReuseconnParams
) -> None:
    context.trace_request_ctx.reused = True


def _cause(error: Exception) -> str:
    """The cause of an error, without quotes of a reply, keys and addresses."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"HTTP {error.status} {_unquoted(error.message)}"
    if isinstance(error, aiohttp.ClientPayloadError):
        return _unquoted(str(error))
    return str(error) or type(error).__name__


def _unquoted(message: str) -> str:
    return re.split("[:\n]", message)[0]
