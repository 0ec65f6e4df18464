"""Hosts that meet, and hosts that were told different things, as threads that talk over real sockets."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from motif_jax.runtime.rendezvous import meet
from motif_jax.support.errors import UserError
from tests.processes import free_port

CONFIG = {"seed": 1, "actors": {"workers": 2}}


def run(guests: list[tuple[int, int, dict[str, Any]]], seconds: float = 20.0) -> list[str | None]:
    """What each of the hosts (index, count, config) was told; None: all is well."""
    coordinator = f"localhost:{free_port()}"

    def one(guest: tuple[int, int, dict[str, Any]]) -> str | None:
        try:
            meet(coordinator, *guest, seconds)
        except UserError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(len(guests)) as threads:
        return list(threads.map(one, guests))


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


def test_hosts_that_stay_away_are_named() -> None:
    answers = run([(0, 4, CONFIG), (2, 4, CONFIG)], seconds=1.5)
    assert answers[0] is not None
    assert "of the run's 4 hosts, number 1, 3 did not come to port" in answers[0]
    assert answers[1] is not None
    [alone] = run([(1, 2, CONFIG)], seconds=0.5)
    assert alone is not None
    assert "host 1 of 2 did not find host 0 at localhost:" in alone


def test_strangers_on_the_port_are_ignored() -> None:
    port = free_port()

    def stranger() -> None:
        for _ in range(100):
            try:
                with socket.create_connection(("localhost", port), timeout=5) as connection:
                    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    return
            except OSError:
                pass

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(meet, f"localhost:{port}", 0, 2, CONFIG, 20.0)
        threads.submit(stranger).result()
        second = threads.submit(meet, f"localhost:{port}", 1, 2, CONFIG, 20.0)
        assert first.result() is second.result() is None


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} cannot be used here"):
            meet(f"localhost:{port}", 0, 2, CONFIG, 0.3)
