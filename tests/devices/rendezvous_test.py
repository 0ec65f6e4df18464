"""Hosts that meet, and hosts that were told different things, as threads that talk over real sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from motif_jax.devices import rendezvous
from motif_jax.devices.rendezvous import meet
from motif_jax.support.errors import UserError
from tests.processes import free_port, wait_until

CONFIG = {"seed": 1, "actors": {"workers": 2}}
# How long hosts wait for one that stays away: on a busy machine those that come may be later than the first of them.
PATIENCE = (1.0, 8.0, 60.0)


def told(coordinator: str, guest: tuple[int, int, dict[str, Any]], seconds: float) -> str | None:
    """What a host (index, count, config) is told; None: all is well."""
    try:
        meet(coordinator, *guest, seconds)
    except UserError as error:
        return str(error)
    return None


def run(guests: list[tuple[int, int, dict[str, Any]]], seconds: float = 240.0) -> list[str | None]:
    """What each of the hosts was told that come at the same time."""
    coordinator = f"localhost:{free_port()}"
    with ThreadPoolExecutor(len(guests)) as threads:
        return list(threads.map(lambda guest: told(coordinator, guest, seconds), guests))


def connect(port: int, seconds: float = 240.0) -> socket.socket:
    """A connection to the first host, as soon as it listens."""
    found: list[socket.socket] = []

    def listens() -> bool:
        with contextlib.suppress(OSError):
            found.append(socket.create_connection(("localhost", port), 5))
        return bool(found)

    wait_until(listens, "the first host listens", seconds, 0.01)
    return found[0]


def come_and_go(port: int, index: int, count: int, reset: bool = False, seconds: float = 240.0) -> None:
    """A host that says who it is and dies before the first one, busy with a stranger, looks at it."""
    with connect(port, seconds), connect(port, seconds) as guest:
        guest.sendall(json.dumps({"index": index, "count": count, "config": CONFIG}).encode() + b"\n")
        if reset:  # closing then sends an error in place of the end
            guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_hosts_of_one_config_meet() -> None:
    assert run([(0, 3, CONFIG), (1, 3, CONFIG), (2, 3, CONFIG)]) == [None] * 3


def test_all_hosts_hear_which_keys_differ() -> None:
    other = {"seed": 2, "actors": {"workers": 7}}
    answers = run([(0, 2, CONFIG), (1, 2, other)])
    assert answers[0] == answers[1]
    assert answers[0] is not None
    assert "actors.workers: 2 on host 0, 7 on host 1; seed: 1 on host 0, 2 on host 1" in answers[0]


def test_hosts_with_another_count_or_one_number_twice_are_told() -> None:
    for answer in run([(0, 2, CONFIG), (1, 3, CONFIG)]):
        assert answer == "config.hosts.count=2 on host 0 and 3 on host 1: must be the same"
    for answer in run([(0, 3, CONFIG), (1, 3, CONFIG), (1, 3, CONFIG)]):
        assert answer == "config.hosts.index=1 was given to two hosts: every host needs its own"


def test_a_host_that_comes_after_a_mismatch_hears_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    coordinator, other = f"localhost:{free_port()}", {**CONFIG, "seed": 2}
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(told, coordinator, (0, 3, CONFIG), 60.0)
        answer = told(coordinator, (1, 3, other), 60.0)  # at once: host 2 is not there yet
        assert not first.done()
        assert told(coordinator, (2, 3, CONFIG), 60.0) == first.result() == answer
    assert answer == "the hosts of a run need the same config: seed: 1 on host 0, 2 on host 1"
    assert capsys.readouterr().err == f"{answer} (waiting to tell 1 more of the run's 3 hosts)\n"


@pytest.mark.slow
def test_a_mismatch_is_the_answer_although_a_host_stays_away() -> None:
    expected = ["the hosts of a run need the same config: seed: 1 on host 0, 2 on host 1"] * 2
    tries = (run([(0, 3, CONFIG), (1, 3, {**CONFIG, "seed": 2})], seconds) for seconds in PATIENCE)
    assert any(answers == expected for answers in tries)


@pytest.mark.slow
def test_hosts_that_stay_away_are_named() -> None:
    tries = (run([(0, 4, CONFIG), (2, 4, CONFIG)], seconds) for seconds in PATIENCE)
    missing = "of the run's 4 hosts, number 1, 3 did not come to port"
    assert any(missing in (first or "") and other is not None for first, other in tries)
    [alone] = run([(1, 2, CONFIG)], seconds=0.5)
    assert alone is not None
    assert "host 1 of 2 did not find host 0 at localhost:" in alone


def test_strangers_on_the_port_are_ignored() -> None:
    port = free_port()
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(meet, f"localhost:{port}", 0, 2, CONFIG, 240.0)
        with connect(port) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        second = threads.submit(meet, f"localhost:{port}", 1, 2, CONFIG, 240.0)
        assert first.result() is second.result() is None


@pytest.mark.parametrize(
    "said", [{}, {"index": "1", "count": 2, "config": {}}, {"index": 1, "count": None, "config": {}}, {"index": True, "count": 2, "config": {}},
             {"index": 1, "count": 2, "config": [1]}, {"index": 1, "count": 2}],
)  # fmt: skip
def test_strangers_that_speak_json_are_ignored(said: dict[str, Any]) -> None:
    port = free_port()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(told, f"localhost:{port}", (0, 2, CONFIG), 60.0)
        with connect(port) as stranger:
            stranger.sendall(json.dumps(said).encode() + b"\n")
        second = threads.submit(told, f"localhost:{port}", (1, 2, CONFIG), 60.0)
        assert first.result() is second.result() is None


def test_who_answers_something_else_is_not_taken_for_the_first_host() -> None:
    """As a server may that has had the port until now; the first host comes later."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        guest = threads.submit(told, f"127.0.0.1:{server.getsockname()[1]}", (1, 2, CONFIG), 60.0)
        server.settimeout(60.0)
        for answer in ({}, {"problem": 3}, {"problem": None}):
            with server.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(json.dumps(answer).encode() + b"\n")
        assert guest.result() is None


def has_ipv6() -> bool:
    """Whether this machine has a loopback of IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["[::1]", "::1"])
def test_hosts_meet_at_an_address_of_ipv6(host: str) -> None:
    coordinator = f"{host}:{free_port()}"
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda n: told(coordinator, (n, 2, CONFIG), 30.0), range(2))) == [None, None]


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_a_host_that_went_away_and_came_back_is_welcome(
    count: int, reset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two it was the last one, too: the first does not leave before it is back."""
    # Were the stranger given up while this machine is busy, the guest would be looked at before it has gone.
    monkeypatch.setattr(rendezvous._read, "__defaults__", (240.0,))
    port = free_port()
    with ThreadPoolExecutor(count) as threads:
        first = threads.submit(told, f"localhost:{port}", (0, count, CONFIG), 240.0)
        come_and_go(port, 1, count, reset)
        others = [
            threads.submit(told, f"localhost:{port}", (index, count, CONFIG), 240.0)
            for index in range(1, count)
        ]
        assert [host.result() for host in [first, *others]] == [None] * count


@pytest.mark.slow
def test_a_host_that_went_away_and_stays_away_is_named() -> None:
    def is_named(seconds: float) -> bool:
        port = free_port()
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(told, f"localhost:{port}", (0, 3, CONFIG), seconds)
            with contextlib.suppress(AssertionError):  # the first one has given up by now
                come_and_go(port, 1, 3, seconds=seconds)
            last = threads.submit(told, f"localhost:{port}", (2, 3, CONFIG), seconds)
            missing = f"of the run's 3 hosts, number 1 did not come to port {port} in time"
            return first.result() == last.result() == missing

    assert any(map(is_named, PATIENCE))


def test_a_host_that_reaches_itself_goes_on_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody listens yet, the system can give a connection the very port that it is to."""
    port, connect, peers = free_port(), socket.create_connection, []

    def to_itself(address: tuple[str, int], timeout: float) -> socket.socket:
        connection = connect(address, timeout, source_address=("127.0.0.1", port))
        peers.append(connection.getpeername())
        return connection

    monkeypatch.setattr(socket, "create_connection", to_itself)
    answer = told(f"127.0.0.1:{port}", (1, 2, CONFIG), 0.5)
    assert peers == [("127.0.0.1", port)], "connected once; after that the port rests for a while"
    assert answer is not None
    assert "host 1 of 2 did not find host 0" in answer


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} cannot be used here"):
            meet(f"localhost:{port}", 0, 2, CONFIG, 0.3)
