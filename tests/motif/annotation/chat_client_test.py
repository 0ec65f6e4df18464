"""Requests to a server, as they are sent, and what is said of replies that are none; each from a
socket that is really there.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import email.utils
import http.client
import json
import socketserver
import threading
import time

import pytest

from motif_jax.motif.annotation.chat_client import (
    ChatClient,
    NoConnectionError,
    StatusError,
    is_address,
    retry_after,
)
from motif_jax.motif.annotation.replies import MalformedReplyError

REPLY = b'{"choices": []}'


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
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def complete(url, timeout_seconds=100.0, request=None, times=1):
    """The last of the replies."""

    async def work():
        async with contextlib.aclosing(
            ChatClient(url, "sk-1", timeout_seconds, concurrency=1)
        ) as client:
            return [await client.complete(request or {"model": "m"}) for _ in range(times)][-1]

    return asyncio.run(work())


def test_a_request_as_it_is_sent(listen):
    server = listen()
    request = {"model": "m", "messages": [{"role": "user", "content": "Ünter — 話"}]}
    assert complete(f"http://{server.address}/v1/", request=request) == {"choices": []}
    first, headers, body = server.requests[0]
    assert (first, body) == ("POST /v1/chat/completions HTTP/1.1", request)
    assert (headers["authorization"], headers["content-type"]) == (
        "Bearer sk-1",
        "application/json",
    )
    assert headers["accept-encoding"] == "identity", "an unpacked reply may have any size"
    complete(f"http://me:word@{server.address}/v1")
    assert (
        server.requests[1][1]["authorization"] == "Basic " + base64.b64encode(b"me:word").decode()
    )


def test_the_environments_proxy_is_used_unless_no_proxy_excludes_it(listen, monkeypatch):
    proxy = listen()
    server = listen()
    monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert complete("http://judge.invalid:8000/v1") == {"choices": []}
    line = "POST http://judge.invalid:8000/v1/chat/completions HTTP/1.1"
    assert (proxy.requests[0][0], proxy.requests[0][1]["host"]) == (line, "judge.invalid:8000")
    complete(f"http://{server.address}/v1")
    assert len(proxy.requests) == len(server.requests) == 1


def test_a_connection_that_was_closed_meanwhile_is_no_fault(listen):
    def answer_once(connection):
        connection.sendall(
            f"HTTP/1.1 200 OK\r\nContent-Length: {len(REPLY)}\r\n\r\n".encode() + REPLY
        )
        read_request(connection)  # and is gone without a word

    assert complete(f"http://{listen(answer_once).address}/v1", times=3) == {"choices": []}


def test_no_key_follows_to_another_address(listen):
    other = listen()
    new_address = f"http://{other.address}/v1/chat/completions"
    server = listen(answer(b"", f"308 Permanent Redirect\r\nLocation: {new_address}"))
    with pytest.raises(StatusError) as caught:
        complete(f"http://{server.address}/v1")
    assert (caught.value.headers["location"], other.requests) == (new_address, [])


def test_a_proxy_that_refuses_is_named_without_its_password(listen, monkeypatch):
    status = "407 Proxy Authentication Required"
    proxy = listen(answer(b"", status))
    monkeypatch.setenv("https_proxy", f"http://me:word@{proxy.address}")
    with pytest.raises(
        StatusError, match=rf"^the proxy http://{proxy.address} answers with HTTP {status}$"
    ):
        complete("https://judge.invalid/v1")


@pytest.mark.parametrize(
    ("behave", "fault"),
    [
        pytest.param(lambda connection: None, NoConnectionError, id="closed"),
        pytest.param(sent(b"HTTP/1.1 200 OK\r\nContent-Le"), NoConnectionError, id="head cut off"),
        pytest.param(answer(REPLY, length=1000), NoConnectionError, id="body cut off"),
        pytest.param(sent(b"SSH-2.0-OpenSSH_9\r\n\r\n"), MalformedReplyError, id="no HTTP"),
        pytest.param(answer(b"<html>It works!</html>"), MalformedReplyError, id="HTML"),
        pytest.param(answer(b"[" * 100_000), MalformedReplyError, id="deep"),
        # What is no HTTP may have been cut off in the middle of a key.
        pytest.param(sent(b"HTTP/1.1 200 OK\r\nX: " + 96 * b"x" + b"sk-1" + 9000 * b"x" + b"\r\n\r\n"), MalformedReplyError, id="long header"),
        pytest.param(sent(b"HTTP/1.1 sk-1\r\n\r\n"), MalformedReplyError, id="no status"),
        pytest.param(sent(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsk-1\r\n"), (MalformedReplyError, NoConnectionError), id="no chunk"),
    ],
)  # fmt: skip
def test_what_is_no_reply_is_named_and_not_quoted(listen, behave, fault):
    server = listen(behave)
    with pytest.raises(fault) as caught:
        complete(f"http://{server.address}/v1")
    assert str(caught.value)
    assert "sk-" not in str(caught.value)


def test_a_reply_without_an_end_is_cut_off(listen):
    def behave(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"10000\r\n%b\r\n" % (b" " * (1 << 16)))

    with pytest.raises(MalformedReplyError, match="more than 4194304 bytes"):
        complete(f"http://{listen(behave).address}/v1")


def test_a_reply_that_drips_in_is_not_waited_for(listen):
    """The time counts from the request's start, not from the last byte."""

    def drip(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:  # until nobody listens any more
            connection.sendall(b" ")
            time.sleep(0.05)

    server = listen(drip)
    with pytest.raises(TimeoutError):
        complete(f"http://{server.address}/v1", timeout_seconds=1.0)


def test_what_is_an_address():
    assert all(map(is_address, ("http://judge:8000/v1", "http://me:word@[::1]:80")))
    others = [
        "",
        "judge:8000/v1",
        "ftp://judge/v1",
        "http://",
        "http://my..host/v1",
        "http://[::1/v1",
    ]
    assert not any(map(is_address, [*others, "http://judge:port/v1", "http://judge:0/v1"]))


def test_what_a_server_asks_for():
    seconds = {"0.5": 0.5, "-3": 0, "inf": 0, "Fri, 31 Dec 1999 23:59:59 GMT": 0}
    seconds["Fri, 31 Dec 99999999999999999999 23:59:59 GMT"] = 0
    assert {header: retry_after({"retry-after": header}) for header in seconds} == seconds
    assert retry_after({}) == 0
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    date = email.utils.formatdate(time.time() + 1000, usegmt=True)
    assert 900 < retry_after({"retry-after": date}) <= 1000
