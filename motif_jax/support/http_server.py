"""A small HTTP server for stand-ins of other programs' servers: JSON replies, connections that stay open."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from motif_jax.support.config import is_natural
from motif_jax.support.errors import UserError

# Method, path and body of a request -> status and what the reply holds, as JSON has it.
Handle = Callable[[str, str, bytes], tuple[int, Any]]
_MOST_BYTES = 16 << 20


def run(
    handle: Handle, host: str, port: int, latency_seconds: float, listening: Callable[[int], None]
) -> None:
    """Serves until the process is told to stop (SIGTERM, SIGINT).

    Args:
      handle: answers.
      host, port: where; port 0 for a free one.
      latency_seconds: from a request to its answer, however many come together.
      listening: called with the port when it is open.

    Raises:
      UserError: the host is no address of this machine, or the port cannot be had.
    """

    async def main() -> None:
        task = asyncio.create_task(serve(handle, host, port, latency_seconds, listening))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):  # as it was asked to
            await task

    try:
        asyncio.run(main())
    except (socket.gaierror, UnicodeError) as error:  # a name that nobody knows, and one that cannot be one
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(_no_host(host, reason)) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserError(_no_host(host, reason)) from None
        raise UserError(f"config.port={port}: cannot be had on {host}: {reason}") from None


def _no_host(host: str, reason: str | None) -> str:
    return f"config.host='{host}': must be a name or an address of this machine: {reason}"


async def serve(
    handle: Handle, host: str, port: int, latency_seconds: float, listening: Callable[[int], None]
) -> None:
    """Serves until it is cancelled, which ends the connections that are open; arguments as `run` has them.

    Raises:
      OSError: the port cannot be had.
    """
    conversations: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                while (request := await _read(reader)) is not None:
                    start = asyncio.get_running_loop().time()
                    status, body = handle(*request)
                    left = latency_seconds - (asyncio.get_running_loop().time() - start)
                    if request[0] == "POST" and left > 0:
                        await asyncio.sleep(left)
                    data = json.dumps(body).encode()
                    head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\nContent-Type: application/json\r\n"
                    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
                    await writer.drain()
        finally:
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task that asyncio made itself would be told of as a fault when it is cancelled.
        task = asyncio.create_task(converse(reader, writer))
        conversations.add(task)
        task.add_done_callback(conversations.discard)

    server = await asyncio.start_server(connected, host, port)
    try:
        listening(server.sockets[0].getsockname()[1])
        await (
            asyncio.Event().wait()
        )  # until it is cancelled: serve_forever() waits for the clients to leave, too
    finally:
        server.close()
        for task in conversations:
            task.cancel()
        await asyncio.gather(*conversations, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> tuple[str, str, bytes] | None:
    """Method, path and body of the next request; None at the end, and for what is no HTTP."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    length = headers.get("content-length", "0")
    parts = first.split()
    if len(parts) != 3 or not is_natural(length) or int(length) > _MOST_BYTES:
        return None
    return parts[0], parts[1], await reader.readexactly(int(length))
