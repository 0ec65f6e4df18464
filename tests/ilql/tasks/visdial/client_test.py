from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.tasks.visdial.client import VisDialServer, base_url

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
    server.daemon_threads = True
    server.address = f"http://127.0.0.1:{server.server_address[1]}"
    server.heard = []
    server.script = []
    server.let_go = threading.Event()
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    yield server
    server.let_go.set()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("http://h:5000", "http://h:5000"),
        ("http://h:5000/", "http://h:5000"),
        ("http://h:5000/step", "http://h:5000"),
        ("http://h:5000/step_rank/", "http://h:5000"),
        ("https://h/chat/fetch_reward", "https://h/chat"),
    ],
)
def test_an_address_loses_its_route(address, server):
    assert base_url(address) == server


def client(server, attempts=2, timeout=30.0, **values):
    return VisDialServer(server.address, timeout=timeout, attempts=attempts, wait=0.0, **values)


SENT_HISTORY = '[{"speaker": "question", "text": "what? \\u00e4&="}]'
SENT_FEATURES = "[0.5, -1.0]"
GREEDY = '{"inference": "greedy", "beamSize": 1}'


@pytest.mark.parametrize(
    ("reward", "route", "reply", "step"),
    [("rank", "/step_rank", b'["red", 0.25]', ("red", 0.25)), ("distance", "/step", b'["blue", 1]', ("blue", 1.0))],
)  # fmt: skip
def test_a_step_sends_the_dialogue_and_the_picture(faulty, reward, route, reply, step):
    faulty.script[:] = [reply]

    assert client(faulty, reward=reward).step(HISTORY, "a cat", FEATURES) == step

    fields = {
        "history": SENT_HISTORY,
        "caption": "a cat",
        "img_features": SENT_FEATURES,
        "generation_kwargs": GREEDY,
    }
    assert faulty.heard == [(route, fields)]


@pytest.mark.parametrize(
    ("reward", "route", "reply", "value"),
    [("rank", "/fetch_reward_rank", b"0.5", 0.5), ("distance", "/fetch_reward", b"-1", -1.0)],
)
def test_a_value_sends_no_options_of_generation(faulty, reward, route, reply, value):
    faulty.script[:] = [reply]

    assert client(faulty, reward=reward).value([], "a cat", FEATURES) == value

    assert faulty.heard == [
        (route, {"history": "[]", "caption": "a cat", "img_features": SENT_FEATURES})
    ]


def test_a_question_sends_no_picture(faulty):
    faulty.script[:] = [b'"next?"']
    questioner = client(faulty)

    assert questioner.ask(HISTORY, "a cat") == "next?"

    fields = {"history": SENT_HISTORY, "caption": "a cat", "generation_kwargs": GREEDY}
    assert faulty.heard == [("/fetch_q_bot_response", fields)]
    assert questioner.failures == 0


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


@pytest.mark.parametrize(
    ("status", "requests", "remedy"),
    [
        (400, 1, "is this a server"),
        (404, 1, "is this a server"),
        (408, 3, "start the server again"),
        (429, 3, "start the server again"),
        (499, 1, "is this a server"),
        (500, 3, "start the server again"),
    ],
)
def test_an_unknown_request_is_made_once(faulty, status, requests, remedy):
    faulty.script[:] = [status]
    asker = client(faulty, attempts=3)

    with pytest.raises(UserError, match=f"HTTP status {status}: {remedy}"):
        asker.value([], "c", FEATURES)

    assert asker.failures == len(faulty.heard) == requests


@pytest.mark.parametrize(
    ("options", "waits"),
    [({}, [0.5, 1, 2, 4, 8]), ({"attempts": 8}, [0.5, 1, 2, 4, 8, 10, 10])],
    ids=["default", "eight"],
)
def test_waits_between_attempts_double_up_to_ten_seconds(faulty, monkeypatch, options, waits):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    faulty.script[:] = [HTML]
    asker = VisDialServer(faulty.address, **options)

    with pytest.raises(UserError):
        asker.value([], "c", FEATURES)

    assert slept == waits
    assert asker.failures == len(faulty.heard) == len(waits) + 1
