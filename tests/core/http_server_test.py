"""A server that is told to stop while connections are open: one that waits for its next request,
one for its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from motif_jax.core import http_server
from motif_jax.core.errors import UserError
from tests.processes import Program, ended, wait_until

SERVER = """
from motif_jax.core import http_server

def handle(method, path, body):
    print("asked for", path, flush=True)
    return 200, {"path": path, "said": body.decode()}

where = "127.0.0.1", 0
http_server.run(http_server.serve(handle, *where, 3600.0, lambda port: print(f"port {port}.", flush=True)), *where)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_and_without_a_word(tmp_path: Path, number: signal.Signals) -> None:
    program = Program([sys.executable, "-c", SERVER], tmp_path / "log", {})
    with ended([program]):
        wait_until(
            lambda: re.search(r"port \d+\.", program.text()), "the server listens", interval=0.02
        )
        port = int(re.findall(r"\d+", program.text())[0])
        idle, waiting = (
            http.client.HTTPConnection("127.0.0.1", port, timeout=120) for _ in range(2)
        )
        for path in ("/a", "/b"):  # one after the other on a connection that stays open
            idle.request("GET", path)
            reply = idle.getresponse()
            assert (reply.status, reply.read()) == (
                200,
                f'{{"path": "{path}", "said": ""}}'.encode(),
            )
        waiting.request("POST", "/c", b"slow")
        wait_until(lambda: "asked for /c" in program.text(), "the request has come", interval=0.02)
        program.send(number)
        assert program.wait() == 0
        with pytest.raises(ConnectionError):
            waiting.getresponse()
        assert idle.sock is not None
        assert idle.sock.recv(1) == b"", "the line is closed"
        printed = program.text().splitlines()[1:]
    assert printed == ["asked for /a", "asked for /b", "asked for /c"]


def refusal(host: str, port: int) -> str:
    """What somebody is told who wants to serve there."""
    serving = http_server.serve(lambda *_: (200, {}), host, port, 0.0, lambda _: None)
    with pytest.raises(UserError) as caught:
        http_server.run(serving, host, port)
    return str(caught.value)


def test_an_address_of_another_machine_is_refused() -> None:
    for host in ("nowhere.invalid", "192.0.2.1", "a" * 64):
        line = f"config.host='{host}', config.port=0: must be an address of this machine"
        assert refusal(host, 0).startswith(line)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "0"])
def test_an_address_that_others_reach_wants_a_key(host: str) -> None:
    if host == "::" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    assert "set config.key_variable" in refusal(host, 0)


def serve(visit: Callable[[int], Awaitable[object]], **options: object) -> object:
    """Serves what repeats a path for as long as `visit(port)` takes, and returns what that
    returns.
    """

    async def main() -> object:
        port = asyncio.get_running_loop().create_future()
        arguments = {"host": "127.0.0.1", "port": 0, "latency_seconds": 0.0, **options}
        task = asyncio.create_task(
            http_server.serve(
                lambda _, path, __: (200, path), listening=port.set_result, **arguments
            )
        )
        try:
            return await asyncio.wait_for(visit(await port), 120)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    return asyncio.run(main())


async def ask(port: int, sent: bytes) -> bytes:
    """The reply to what is sent; a connection that asks well stays open, so its reply ends with its
    body.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(sent)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            return head + await reader.readexactly(int(re.findall(rb"Length: (\d+)", head)[0]))
        except (ConnectionError, asyncio.IncompleteReadError):
            return b""


def post(header: bytes, body: bytes = b"{}") -> bytes:
    return b"POST /x HTTP/1.1\r\nHost: a\r\n%bContent-Length: %d\r\n\r\n%b" % (
        header,
        len(body),
        body,
    )


@pytest.mark.parametrize(
    ("sent", "status", "options"),
    [
        (post(b""), 401, {"key": "key"}),
        (post(b"Authorization: Bearer ke\r\n"), 401, {"key": "key"}),
        (post(b"Authorization: Bearer key\r\n"), 200, {"key": "key", "host": "0.0.0.0"}),
        (post(b""), 200, {"open_to_all": True, "host": "0.0.0.0"}),
        (post(b"", b"{" * 1_500_000), 413, {}),
        (b"SSH-2.0\r\n\r\n", 400, {}),
    ],
    ids=["no key", "another key", "key", "open to all", "long", "other protocol"],
)
def test_who_is_answered(sent: bytes, status: int, options: dict[str, object]) -> None:
    reply = serve(lambda port: ask(port, sent), **options)
    assert reply.split()[1] == b"%d" % status
    assert reply.endswith(b'"/x"') == (status == 200)
