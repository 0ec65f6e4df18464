from __future__ import annotations

import contextlib
import errno
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import jax
import numpy as np
import pytest

from motif_jax.core import cluster
from motif_jax.core.cluster import HostPosition
from motif_jax.core.devices import hosts
from motif_jax.core.devices.hosts import Hosts, connected
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import INTERRUPTED, INTERRUPTED_CODE
from motif_jax.core.locks import FolderLock
from motif_jax.core.sections import ClusterHosts
from motif_jax.rl import settings
from tests.play.agent_runs import recall_config, recall_training

SLURM = {"SLURM_JOB_ID": "70003", "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}
SLURM["SLURM_STEP_NODELIST"] = "gpu[03-05,09]"
SEVERAL = {"hosts__coordinator": "n:4000", "hosts__count": 3}


def test_a_position_comes_from_the_config_or_from_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = HostPosition(None, 0, 1)
    alone = {**SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    for environment, arguments, expected in (
        ({}, (None, None, None), nowhere),
        (SLURM, (None, None, None), nowhere),
        ({}, ("localhost:1", 1, 0), nowhere),
        ({}, ("node1:4000", 3, 2), HostPosition("node1:4000", 2, 3)),
        (SLURM, ("slurm", None, None), HostPosition("slurm", 2, 4)),
        (alone, ("slurm", None, None), nowhere),
    ):
        monkeypatch.setattr(cluster.os, "environ", environment)
        assert cluster.position(*arguments) == expected


def test_a_batch_divides_over_hosts_and_their_devices() -> None:
    config = settings.check(recall_training(batch_size=8 * 12, **SEVERAL, hosts__index=1))
    assert settings.columns(config) == 4
    settings.check_devices(config)
    other = recall_training(batch_size=8 * 15, devices__learner="0,1", **SEVERAL, hosts__index=1)
    with pytest.raises(UserError, match=r"divide over 3 hosts of 2 learner devices .*; it is 15 rollouts"):
        settings.check_devices(settings.check(other))


def test_a_port_in_use_is_refused_before_jax_starts() -> None:
    with socket.create_server(("", 0)) as taken:
        here = f"localhost:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=f"coordinator={here}: port .* cannot be used here"):
            hosts._join(HostPosition(here, 0, 2), recall_config(hosts__coordinator=here).hosts)


@pytest.mark.parametrize(
    ("coordinator", "here", "where", "named"),
    [
        ("slurm", (None, 4, 2), "Slurm's first node", ("slurm", None)),
        ("localhost:1", (None, 2, 1), "localhost:1", ("deactivate", "localhost:1")),
        ("node1:4000", (None, 2, 1), "node1:4000", ("deactivate", None)),
    ],
)
def test_hosts_join(coordinator: str, here: Any, where: str, named: Any, monkeypatch: Any) -> None:
    done = Mock()
    options = {"connect_timeout_seconds": 7.25, "heartbeat_timeout_seconds": 12.5, "coordinator": coordinator}
    if coordinator != "slurm":
        here, options = (coordinator, *here[1:]), {**options, "count": here[1], "index": here[2]}
    monkeypatch.setattr(cluster.os, "environ", SLURM)
    monkeypatch.setattr(hosts, "jax", done)
    monkeypatch.setattr(hosts, "_leave_at_once_on_error", contextlib.nullcontext)
    monkeypatch.setattr(hosts.threading, "Timer", done.Timer)
    with connected(ClusterHosts(**options)):
        assert done.Timer.return_value.daemon is True
    late = (
        f"error: host {here[2]}: the {here[1]} hosts of the run did not all meet at {where} within 7.25 s: start all of them at about the "
        "same time, with the same config.hosts.count, and each with a config.hosts.index of its own"
    )
    joined = call.distributed.initialize(
        *here,
        local_device_ids=[],
        cluster_detection_method=named[0],
        initialization_timeout=68,
        heartbeat_timeout_seconds=13,
        coordinator_bind_address=named[1],
        shutdown_timeout_seconds=13,
    )
    watched = [call.Timer(7.25, hosts._leave, (late, 2)), call.Timer().start()]
    switched = call.config.update("jax_enable_preemption_service", False)
    assert done.mock_calls == [*watched, switched, joined, call.Timer().cancel()]


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[Hosts], Any]], list[Any]]:
    """Gives what a function says on each of so many hosts, which are threads; of a UserError its text."""

    def run(count: int, work: Callable[[Hosts], Any]) -> list[Any]:
        values = [np.zeros(0)] * count
        barrier = threading.Barrier(count)
        thread = threading.local()

        def gathered(value: Any) -> np.ndarray:
            values[thread.index] = np.asarray(value)
            barrier.wait(60)
            everyone = np.stack(values)
            barrier.wait(60)
            return everyone

        def one(index: int) -> Any:
            host = Hosts()
            host.index = index
            host.count = count
            thread.index = index
            try:
                return work(host)
            except UserError as error:
                return str(error)
            except BaseException:
                barrier.abort()
                raise

        monkeypatch.setattr(hosts.multihost_utils, "process_allgather", gathered)
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(one, range(count)))

    return run


def test_hosts_agree(together: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = Hosts()
    assert (here.index, here.count, here.is_first, here.gather([1]), here.sum([7])) == (
        0,
        1,
        True,
        [[1]],
        [7],
    )
    here.require_shared(tmp_path / "none")
    assert (here.any(True), here.any(False), here.on_first(lambda: 3)) == (True, False, 3)
    words = ["a", {"b": [1, None]}, random.Random(0).randbytes(400).hex()]
    assert together(3, lambda host: host.gather(words[host.index])) == [words] * 3
    assert together(3, lambda host: host.sum([host.index, 4, -1])) == [[3, 12, -3]] * 3
    for first, other, expected in ((False, True, True), (True, True, True), (False, False, False)):
        assert together(2, lambda host, a=first, b=other: host.any(b if host.index else a)) == [expected] * 2
    done = Mock(return_value=[7])
    assert together(2, lambda host: host.on_first(done)) == [[7], [7]]
    done.assert_called_once_with()
    together(2, lambda host: host.say(f"host {host.index}"))
    assert capsys.readouterr().out == "host 0\n"

    def locked(host: Hosts) -> str:
        with host.locked(tmp_path):
            with pytest.raises(UserError) as caught:
                FolderLock(tmp_path).__enter__()
            host.sum([0])
        return str(caught.value)

    lines = together(2, locked)
    with FolderLock(tmp_path):
        assert together(2, lambda host: host.locked(tmp_path).__enter__()) == lines


def test_hosts_that_differ_say_in_what(together: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = together(3, lambda host: host.require_equal(min(host.index, 1), "w"))
    assert lines == ["w: host 0 sees 0, host 1 sees 1"] * 3
    assert together(3, lambda host: host.require_equal([1], "w")) == [None] * 3

    def alike(host: Hosts) -> None:
        host.require_alike(recall_config(hosts__index=host.index, seed=3 + host.index // 2, **SEVERAL))

    assert together(2, alike) == [None] * 2
    lines = ["the hosts of a run need the same config: seed: 3 on host 0, 4 on host 2"]
    assert together(3, alike) == lines * 3
    counts = iter([2, 3])
    monkeypatch.setattr(hosts.jax, "local_device_count", lambda: next(counts))
    lines = re.sub("[23]", "n", together(2, alike)[0])
    assert lines == "the hosts of a run need equally many devices: host 0 sees n, host 1 sees n"


def test_a_file_of_another_host_may_come_late(tmp_path: Path) -> None:
    file = tmp_path / "file"
    later = threading.Timer(0.3, file.touch)
    later.start()
    assert hosts._appears(file, 60.0)
    later.join()
    assert not hosts._appears(tmp_path / "none", 0.0)


def test_hosts_of_different_folders_say_so(together: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    folders = [tmp_path / "run", tmp_path / "run", other, tmp_path / "none"]
    answers = together(len(folders), lambda host: host.require_shared(folders[host.index], seconds=0.5))
    node = socket.gethostname()
    assert set(answers) == {
        f"--workdir must lie on a file system that all hosts share: host 2 ({other} on {node}) and host 3 ({tmp_path}/none "
        f"on {node}) cannot see what host 0 ({tmp_path}/run on {node}) writes"
    }
    assert [list(folder.iterdir()) for folder in (tmp_path / "run", other)] == [[], []]
    assert together(2, lambda host: host.require_shared(other)) == [None] * 2


def test_an_interrupted_host_of_several_leaves_at_once_with_one_line() -> None:
    code = "from motif_jax.core.devices.hosts import _leave_at_once_on_error as late\nwith late(1): raise KeyboardInterrupt"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (INTERRUPTED_CODE, f"{INTERRUPTED}\n")


LONG = "a path is longer than this system allows"
ENDED = "its log says why; the same command resumes the run"


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (UserError("one\n two"), "error: one two", 2),
        (OSError(errno.ENAMETOOLONG, "x"), f"error: {LONG}: [Errno 36] x", 2),
        (
            jax.errors.JaxRuntimeError("closed by peer"),
            f"error: another host of the run has ended: {ENDED}",
            1,
        ),
        (jax.errors.JaxRuntimeError("of another kind"), "jax.errors.JaxRuntimeError: of another kind", 1),
        (KeyboardInterrupt(), INTERRUPTED, INTERRUPTED_CODE),
        (ValueError("closed by peer"), "ValueError: closed by peer", 1),
    ],
)
def test_a_host_of_several_leaves(error: BaseException, line: str, code: int, monkeypatch: Any) -> None:
    left: list[Any] = []
    monkeypatch.setattr(hosts, "_leave", lambda *arguments: left.append(arguments))
    for index in (0, 1):
        with hosts._leave_at_once_on_error(index):
            raise error
    assert [(message.splitlines()[-1], *rest) for message, *rest in left] == [
        (line, code, 5.0),
        (line, code, 0.0),
    ]
    assert left[0][0].startswith("Traceback") == line.startswith(("ValueError", "jax"))
    with pytest.raises(SystemExit), hosts._leave_at_once_on_error(1):
        raise SystemExit
    with pytest.raises(ZeroDivisionError), connected(ClusterHosts()):
        raise ZeroDivisionError
