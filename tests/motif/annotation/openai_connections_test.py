"""What a question is as it is sent, and what is said of replies that are none; each from a socket
that is really there.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import http.client
import json
import socketserver
import threading
import time

import pytest

from motif_jax.core.verdicts import SINGLE, YES
from motif_jax.motif.annotation.annotator import ServerError, make_annotator
from motif_jax.motif.annotation.openai_client import retry_after
from tests.motif.annotation.scripted_server import ASKED, GOOD, config, reply

REPLY = reply(GOOD).encode()


class Listener(socketserver.TCPServer):
    """Takes one connection after the other, keeps what it reads of a request, and answers by
    `behave(connection)`.
    """

    def __init__(self, behave):
        super().__init__(("127.0.0.1", 0), None)
        self.requests = []
        self._behave = behave
        self.address = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def finish_request(self, request, client_address):
        with contextlib.suppress(ConnectionError):
            self.requests.append(read_request(request))
            self._behave(request)


def read_request(connection):
    """The first line, headers and body."""
    with connection.makefile("rb") as file:
        first = file.readline().decode().strip()
        headers = http.client.parse_headers(file)
        body = file.read(int(headers.get("content-length", 0)))
    return first, headers, json.loads(body) if body else None


def sent(data):
    return lambda connection: connection.sendall(data)


def answer(body, status="200 OK", length=None):
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if length is None else length}\r\nX-Told: 3\r\nConnection: close\r\n\r\n"
    return sent(head.encode() + body)


WELL = answer(REPLY)


@pytest.fixture
def listen():
    with contextlib.ExitStack() as stack:

        def listen(behave=WELL):
            listener = stack.enter_context(Listener(behave))
            stack.callback(listener.shutdown)
            return listener

        yield listen


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def ask(url, timeout_seconds=100.0):
    """The label of a question."""
    values = {"openai.base_url": url, "openai.timeout_seconds": timeout_seconds}
    annotator = make_annotator(config(**values), SINGLE)
    annotator.start()
    try:
        return annotator.submit(ASKED).result().label
    finally:
        annotator.close()


def test_a_question_is_posted_with_the_key(listen):
    server = listen()
    assert ask(f"http://{server.address}/v1/") == YES
    first, headers, body = server.requests[0]
    assert (first, body["model"]) == ("POST /v1/chat/completions HTTP/1.1", "judge")
    assert headers["authorization"] == "Bearer sk-1"
    assert headers["content-type"] == "application/json"


def test_a_query_in_the_address_stays_behind_the_path(listen):
    server = listen()
    ask(f"http://{server.address}/v1?api-version=2024&a=b%26c")
    assert server.requests[0][0] == "POST /v1/chat/completions?api-version=2024&a=b%26c HTTP/1.1"


def test_no_message_shows_the_query(listen):
    server = listen(answer(b"no", "400 Bad Request"))
    with pytest.raises(ServerError, match=rf"the server http://{server.address}/v1 ") as caught:
        ask(f"http://{server.address}/v1?key=sesame")
    assert "sesame" not in str(caught.value)


def test_a_user_in_the_address_takes_the_keys_place(listen):
    server = listen()
    ask(f"http://me:word@{server.address}/v1")
    basic = "Basic " + base64.b64encode(b"me:word").decode()
    assert server.requests[0][1]["authorization"] == basic


def test_the_environments_proxy_is_used_unless_no_proxy_excludes_it(listen, monkeypatch):
    proxy = listen()
    server = listen()
    monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert ask("http://judge.invalid:8000/v1") == YES
    line = "POST http://judge.invalid:8000/v1/chat/completions HTTP/1.1"
    assert (proxy.requests[0][0], proxy.requests[0][1]["host"]) == (line, "judge.invalid:8000")
    ask(f"http://{server.address}/v1")
    assert len(proxy.requests) == len(server.requests) == 1


def test_no_key_follows_to_another_address(listen):
    other = listen()
    new_address = f"http://{other.address}/v1/chat/completions"
    server = listen(answer(b"", f"308 Permanent Redirect\r\nLocation: {new_address}"))
    with pytest.raises(ServerError, match=f"HTTP 308 .redirects to {new_address}"):
        ask(f"http://{server.address}/v1")
    assert other.requests == []


def test_a_proxy_that_refuses_is_named_without_its_password(listen, monkeypatch):
    proxy = listen(answer(b"", "407 Proxy Authentication Required"))
    monkeypatch.setenv("https_proxy", f"http://me:word@{proxy.address}")
    with pytest.raises(ServerError, match=f"a proxy that refuses .407.*{proxy.address}") as caught:
        ask("https://judge.invalid/v1")
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("behave", "kind"),
    [
        pytest.param(lambda connection: None, "no connection", id="closed"),
        pytest.param(answer(REPLY, length=1000), "no connection", id="body cut off"),
        pytest.param(sent(b"SSH-2.0-OpenSSH_9\r\n\r\n"), "no connection", id="no HTTP"),
        pytest.param(answer(b"<html>It works!</html>"), "rubbish", id="HTML"),
        # What is no HTTP may have been cut off in the middle of a key.
        pytest.param(sent(b"HTTP/1.1 sk-1\r\n\r\n"), "no connection", id="no status"),
    ],
)
def test_what_is_no_reply_may_pass_and_shows_no_key(listen, behave, kind):
    server = listen(behave)
    with pytest.raises(ServerError) as caught:
        ask(f"http://{server.address}/v1")
    assert caught.value.kind == kind
    assert "sk-" not in str(caught.value)


def test_a_server_that_is_not_there_may_come(listen):
    with pytest.raises(ServerError, match=r"cannot be reached .*127\.0\.0\.1:1 ") as caught:
        ask("http://127.0.0.1:1/v1")
    assert caught.value.kind == "no connection"


def test_a_reply_that_drips_in_is_not_waited_for(listen):
    """The time counts from the request's start, not from the last byte."""

    def drip(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:  # until nobody listens any more
            connection.sendall(b" ")
            time.sleep(0.05)

    server = listen(drip)
    with pytest.raises(ServerError, match="did not answer within 1 s"):
        ask(f"http://{server.address}/v1", timeout_seconds=1.0)


def test_retry_after_is_seconds_or_a_date():
    seconds = {"0.5": 0.5, "-3": 0, "inf": 0, "soon": 0, "Fri, 31 Dec 1999 23:59:59 GMT": 0}
    assert {header: retry_after({"Retry-After": header}) for header in seconds} == seconds
    assert retry_after({}) == 0
    date = email.utils.formatdate(time.time() + 1000, usegmt=True)
    assert 900 < retry_after({"Retry-After": date}) <= 1000
