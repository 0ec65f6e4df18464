from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from motif_jax.ilql.tasks.visdial.client import VisDialServer, checked_url
from tests.envs.playing import told
from tests.recorded_outputs import assert_matches_packed_recording

HISTORY = [{"speaker": "question", "text": "what? ä&="}]
FEATURES = np.array([0.5, -1.0])
HTML = b"<html>busy</html>"


class Faulty(BaseHTTPRequestHandler):
    """Replies what its server's script says, the last of it for ever."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fields = dict(urllib.parse.parse_qsl(body.decode()))
        self.server.heard.append((self.path, fields))
        script = self.server.script
        act = script.pop(0) if len(script) > 1 else script[0]
        if act == "hang":
            self.server.let_go.wait(60)
        elif act == "close":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif act == "drip":
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while not self.server.let_go.wait(0.05):
                    self.wfile.write(b" ")
        else:
            status, data = (act, HTML) if isinstance(act, int) else (200, act)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def faulty():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Faulty)
    server.daemon_threads, server.address = True, f"http://127.0.0.1:{server.server_address[1]}"
    server.heard, server.script, server.let_go = [], [], threading.Event()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.let_go.set()
    server.shutdown()
    server.server_close()


def test_an_address_is_one_of_http_without_its_route(record):
    for url in ("http://h:5000", "http://h:5000/", "http://h:5000/step", "http://h:5000/step_rank/"):
        assert checked_url("k", url) == "http://h:5000"
    assert checked_url("k", "https://h/chat/fetch_reward") == "https://h/chat"
    refused = "127.0.0.1:5000", "ftp://host", "http://", "http:///step", "http://h:port", "h", ""
    assert_matches_packed_recording(
        "visdial_addresses", {url: told(checked_url, "k", url) for url in refused}, record
    )


def client(server, attempts=2, timeout=30.0, **values):
    return VisDialServer(server.address, timeout=timeout, attempts=attempts, wait=0.0, **values)


def test_what_each_route_is_sent(faulty, record):
    faulty.script[:] = [b'["red", 0.25]', b'["blue", 1]', b"0.5", b"-1", b'"next?"']
    rank, distance = client(faulty), client(faulty, reward="distance")
    said = [asker.step(HISTORY, "a cat", FEATURES) for asker in (rank, distance)]
    said += [asker.value([], "a cat", FEATURES) for asker in (rank, distance)]
    said += [rank.ask(HISTORY, "a cat"), rank.failures]
    assert said == [("red", 0.25), ("blue", 1.0), 0.5, -1, "next?", 0]
    assert_matches_packed_recording("visdial_requests", {"all": "\n".join(map(str, faulty.heard))}, record)


FAULTS = [
    500, 503, "close", HTML, b"", b'["red", NaN]', b'["red", Infinity]', b'["red"]', b'{"a": 1}', b'[1, 2]', b'["red", "1"]',
    b'["red", 0.25]'.rjust((1 << 20) + 1),
]  # fmt: skip


def test_faults_are_retried_and_counted(faulty):
    faulty.script[:] = [*FAULTS, b'["red", 0.25]'.rjust(1 << 20)]
    asker = client(faulty, attempts=len(FAULTS) + 1)
    assert asker.step(HISTORY, "c", FEATURES) == ("red", 0.25)
    assert asker.failures == len(FAULTS)
    assert all(request == faulty.heard[0] for request in faulty.heard)


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_a_server_that_hangs_is_not_waited_for(faulty, fault):
    faulty.script[:] = [fault, b'["red", 0.25]']
    # On a busy machine an answer may come too late as well.
    asker = client(faulty, timeout=1.0, attempts=20)
    assert asker.step(HISTORY, "c", FEATURES) == ("red", 0.25)
    assert asker.failures >= 1


@pytest.mark.parametrize(("status", "asked"), [(400, 1), (404, 1), (408, 3), (429, 3), (499, 1), (500, 3)])
def test_what_is_no_server_of_dialogue_is_asked_once(faulty, status, asked):
    faulty.script[:] = [status]
    asker, advice = client(faulty, attempts=3), "is this a server" if asked == 1 else "start the server again"
    assert f"HTTP status {status}: {advice}" in told(asker.value, [], "c", FEATURES)
    assert asker.failures == len(faulty.heard) == asked


def test_in_the_end_it_is_one_line(faulty, monkeypatch, record):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    faulty.script[:] = [HTML]
    for options, waited in (({}, [0.5, 1, 2, 4, 8]), ({"attempts": 8}, [0.5, 1, 2, 4, 8, 10, 10])):
        asker, count = VisDialServer(faulty.address, **options), len(waited) + 1
        said = told(asker.value, [], "c", FEATURES).replace(faulty.address, "")
        assert_matches_packed_recording(
            "visdial_client", {"failed": said.replace(f" {count} times", "")}, record
        )
        assert (asker.failures, len(faulty.heard), waits) == (count, count, waited)
        waits.clear()
        faulty.heard.clear()
