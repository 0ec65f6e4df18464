"""A small server of JSON replies, for stand-ins of other programs' servers."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import web

from motif_jax.core.errors import UserError

# Method, path and body of a request -> status and JSON-able body of the reply.
Handle = Callable[[str, str, bytes], tuple[int, Any]]
_BODY_SECONDS = 60.0
# Longest wait for requests in progress at the end; 0 would wait forever.
_SHUTDOWN_SECONDS = 0.05


def run(serving: Coroutine[Any, Any, None], host: str, port: int) -> None:
    """Runs `serve` until SIGTERM or SIGINT; raises UserError, too, for another machine's host or a
    port that is taken.
    """

    async def main() -> None:
        task = asyncio.create_task(serving)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):  # by the signal
            await task

    try:
        asyncio.run(main())
    except (OSError, UnicodeError) as error:  # UnicodeError: no host can have this name
        raise UserError(
            f"config.host='{host}', config.port={port}: must be an address of this machine and a free port of it: {error}"
        ) from None


async def serve(
    handle: Handle,
    host: str,
    port: int,
    latency_seconds: float,
    listening: Callable[[int], None],
    key: str = "",
    open_to_all: bool = False,
) -> None:
    """Serves until it is cancelled, which ends open connections.

    Args:
      port: 0 for a free one.
      latency_seconds: from a POST request to its reply.
      listening: called with the port when it is open.
      key: required in each request (`Authorization: Bearer KEY`); '' for none.
      open_to_all: whether an address that other machines reach needs no key.

    Raises OSError: the port cannot be had; UserError: other machines reach the address without a
    key.
    """
    loop = asyncio.get_running_loop()

    async def answer(request: web.BaseRequest) -> web.Response:
        authorization = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        # In constant time, so that the time of a refusal says nothing about the key.
        if key and not hmac.compare_digest(authorization, f"Bearer {key}".encode()):
            message = "the request has no key, or another one"
            return web.json_response({"error": {"message": message, "code": 401}}, status=401)
        # A client that sends its body slowly, or never, must not hold memory for long.
        async with asyncio.timeout(_BODY_SECONDS):
            body = await request.read()
        start = loop.time()
        status, reply = handle(request.method, request.raw_path, body)
        remaining = latency_seconds - (loop.time() - start)
        if request.method == "POST" and remaining > 0:
            await asyncio.sleep(remaining)
        return web.json_response(reply, status=status)

    web_server = web.Server(answer, access_log=None)  # which refuses bodies of more than 1 MiB
    server = await loop.create_server(web_server, host, port, start_serving=False)
    try:
        addresses = [ipaddress.ip_address(socket.getsockname()[0]) for socket in server.sockets]
        if not (key or open_to_all or all(address.is_loopback for address in addresses)):
            raise UserError(
                f"config.host='{host}': other machines reach {addresses[0]}: set config.key_variable to the name of an "
                "environment variable that holds a key, or config.open_to_all=True"
            )
        await server.start_serving()
        listening(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()  # until it is cancelled
    finally:
        server.close()
        web_server.pre_shutdown()
        await web_server.shutdown(_SHUTDOWN_SECONDS)
