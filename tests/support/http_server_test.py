"""A server that is told to stop while connections are open: one that waits for its next request, one for its answer."""

from __future__ import annotations

import http.client
import re
import signal
import sys
from pathlib import Path

import pytest

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
