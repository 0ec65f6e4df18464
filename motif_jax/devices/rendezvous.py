"""The hosts of a run meet before jax connects them, so that a wrong count, number or config is told in one line.

The first host listens; the others say who they are and what they were told to run, and hear whether all is well.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from motif_jax.support import run_folder
from motif_jax.support.errors import UserError
from motif_jax.support.files import parse_json

_RETRY_SECONDS = 0.2
_HELLO_SECONDS = 10.0
_LONGEST_HELLO = 1 << 20


def meet(coordinator: str, index: int, count: int, config: Mapping[str, Any], timeout: float) -> None:
    """Returns on every host when all are there and agree.

    Args:
      coordinator: 'HOST:PORT' of the first host; an IPv6 address as HOST may stand in brackets.
      index: number of this host, 0 to count - 1.
      count: hosts of the run.
      config: plain data that must be the same everywhere.
      timeout: seconds that hosts wait for each other.

    Raises:
      UserError: on all hosts that are there; says which are missing, or which were told something else.
    """
    host, _, port = coordinator.rpartition(":")
    hello = {"index": index, "count": count, "config": dict(config)}
    deadline = time.monotonic() + timeout
    if index == 0:
        _receive_all(loopback(coordinator), int(port), hello, deadline)
    else:
        _introduce(host, int(port), hello, deadline)


def loopback(coordinator: str) -> str | None:
    """The address that a coordinator of this machine alone listens at; None where other machines may come.

    Names but 'localhost' are other machines': many machines know their own name by an address of the loopback, too.
    """
    host = coordinator.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        return host if ipaddress.ip_address(host).is_loopback else None
    return None


def _receive_all(address: str | None, port: int, mine: dict[str, Any], deadline: float) -> None:
    """The first host's side, which listens at one address, or (None) at all that it has.

    Those that are there hear of a mismatch at once; those that are still to come hear of it when they do.
    """
    count = mine["count"]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_listen(address, port, deadline))
        guests: dict[socket.socket, int] = {}
        told, problem = 0, None
        while told + len(guests := _still_there(guests)) < count - 1:
            guest = _accept(server, deadline)
            if guest is None:
                if problem is None:
                    # Not asked again who is there: now they give up too.
                    known = {0, *guests.values()}
                    missing = ", ".join(str(i) for i in range(count) if i not in known)
                    problem = (
                        f"of the run's {count} hosts, number {missing} did not come to port {port} in time"
                    )
                    _tell(guests, problem)
                break
            stack.enter_context(guest)
            hello = _read(guest)
            if hello is None or not _is_hello(hello):
                continue  # somebody else's connection
            if problem is not None:
                _tell([guest], problem)
                told += 1
                continue
            guests = _still_there(guests)
            problem = _compare(mine, hello, {0, *guests.values()})
            guests[guest] = hello["index"]
            if problem is not None:
                _tell(guests, problem)
                # They hang up now, but have been here.
                told, late = len(guests), count - 1 - len(guests)
                guests = {}
                if late:
                    more = f"waiting to tell {late} more of the run's {count} hosts"
                    print(f"{problem} ({more})", file=sys.stderr, flush=True)
        if problem is None:
            _tell(guests, None)
        for guest in guests:
            _read(guest)  # they hang up first, which leaves the port free for jax
    if problem is not None:
        raise UserError(problem)


def _accept(server: socket.socket, deadline: float) -> socket.socket | None:
    """The next connection, None if there is none in time."""
    server.settimeout(max(0.01, deadline - time.monotonic()))
    try:
        return server.accept()[0]
    except TimeoutError:
        return None


def _still_there(guests: Mapping[socket.socket, int]) -> dict[socket.socket, int]:
    """Those that wait for their answer: who was stopped meanwhile has hung up, and may come again."""
    waiting = {}
    for guest, index in guests.items():
        guest.settimeout(0.0)
        try:
            gone = guest.recv(1, socket.MSG_PEEK) == b""  # they say nothing after their hello
        except BlockingIOError:
            gone = False
        except OSError:
            gone = True
        guest.settimeout(_HELLO_SECONDS)  # so that a long answer is not cut short
        if not gone:
            waiting[guest] = index
    return waiting


def _tell(guests: Iterable[socket.socket], problem: str | None) -> None:
    for guest in guests:
        with contextlib.suppress(OSError):
            guest.sendall(json.dumps({"problem": problem}).encode() + b"\n")


def _listen(address: str | None, port: int, deadline: float) -> socket.socket:
    while True:
        try:
            if address is not None:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                return socket.create_server((address, port), family=family)
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
            return socket.create_server(("", port))
        except OSError as error:
            if time.monotonic() > deadline:
                raise UserError(
                    f"config.hosts.coordinator: port {port} cannot be used here ({error.strerror}): choose another"
                ) from None
        time.sleep(_RETRY_SECONDS)


def _is_hello(value: Mapping[str, Any]) -> bool:
    """Whether a stranger's JSON could be what `_introduce` sends."""
    counted = all(type(value.get(key)) is int for key in ("index", "count"))
    return counted and isinstance(value.get("config"), dict)


def _compare(mine: dict[str, Any], hello: dict[str, Any], known: set[int]) -> str | None:
    index, count = hello["index"], hello["count"]
    if count != mine["count"]:
        return f"config.hosts.count={mine['count']} on host 0 and {count} on host {index}: must be the same"
    if index in known:
        return f"config.hosts.index={index} was given to two hosts: every host needs its own"
    keys = [*mine["config"], *hello["config"]]
    changed = run_folder.differences(mine["config"], hello["config"], keys)
    if changed:
        shown = "; ".join(changed).replace(" before, ", " on host 0, ").replace(" now", f" on host {index}")
        return f"the hosts of a run need the same config: {shown}"
    return None


def _introduce(host: str, port: int, hello: dict[str, Any], deadline: float) -> None:
    """The side of all others."""
    answer, reason = None, "no answer"
    while answer is None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise UserError(
                f"host {hello['index']} of {hello['count']} did not find host 0 at {host}:{port} in time ({reason}): "
                "start all hosts at about the same time, and check config.hosts.coordinator"
            )
        try:
            with socket.create_connection((host.strip("[]"), port), timeout=left) as connection:
                if connection.getsockname() == connection.getpeername():
                    # Where nobody listens, a connection on one machine can get the port that it is to as its own, and
                    # then it is connected to itself.
                    raise ConnectionRefusedError("nobody listens there")
                connection.sendall(json.dumps(hello).encode() + b"\n")
                answer = _read(connection, left)
                if answer is not None and not isinstance(answer.get("problem", 0), str | None):
                    answer, reason = None, "somebody else answers there"
        except OSError as error:
            reason = error.strerror or str(error)
        if answer is None:
            time.sleep(_RETRY_SECONDS)
    if answer["problem"] is not None:
        raise UserError(answer["problem"])


def _read(connection: socket.socket, timeout: float = _HELLO_SECONDS) -> dict[str, Any] | None:
    """One line of JSON, None if something else comes or nothing in time."""
    connection.settimeout(timeout)
    data = b""
    try:
        while not data.endswith(b"\n") and len(data) < _LONGEST_HELLO:
            part = connection.recv(1 << 16)
            if not part:
                return None
            data += part
        value = parse_json(data)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
