"""A server that is told to stop while connections are open: one that waits for its next request, one for its answer."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from motif_jax.support import http_server
from motif_jax.support.errors import UserError
from tests.processes import Program, ended, wait_until

SERVER = """
from motif_jax.support import http_server

def handle(method, path, body):
    print("asked for", path, flush=True)
    return 200, {"path": path, "said": body.decode()}

http_server.run(handle, "127.0.0.1", 0, 3600.0, lambda port: print(f"port {port}.", flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_and_without_a_word(tmp_path: Path, number: signal.Signals) -> None:
    program = Program([sys.executable, "-c", SERVER], tmp_path / "log", {})
    with ended([program]):
        wait_until(lambda: re.search(r"port \d+\.", program.text()), "the server listens", interval=0.02)
        port = int(re.findall(r"\d+", program.text())[0])
        idle, waiting = (http.client.HTTPConnection("127.0.0.1", port, timeout=120) for _ in range(2))
        for path in ("/a", "/b"):  # one after the other on a connection that stays open
            idle.request("GET", path)
            reply = idle.getresponse()
            assert (reply.status, reply.read()) == (200, f'{{"path": "{path}", "said": ""}}'.encode())
        waiting.request("POST", "/c", b"slow")
        wait_until(lambda: "asked for /c" in program.text(), "the request has come", interval=0.02)
        program.send(number)
        assert program.wait() == 0
        with pytest.raises(ConnectionError):
            waiting.getresponse()
        assert idle.sock is not None
        assert idle.sock.recv(1) == b"", "the line is closed"
        said = program.text().splitlines()[1:]
    assert said == ["asked for /a", "asked for /b", "asked for /c"]


def refusal(host: str, port: int) -> str:
    """What somebody is told who wants to serve there."""
    with pytest.raises(UserError) as caught:
        http_server.run(lambda *_: (200, {}), host, port, 0.0, lambda _: None)
    return str(caught.value)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "192.0.2.1"])  # the last: of documentation
def test_a_host_that_is_none_of_this_machines_is_named(host: str) -> None:
    line = refusal(host, 0)
    assert line.startswith(f"config.host='{host}': must be a name or an address of this machine: ")
    assert "Unknown error" not in line


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal("127.0.0.1", port)
    assert line == f"config.port={port}: cannot be had on 127.0.0.1: Address already in use"
