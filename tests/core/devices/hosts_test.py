from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pytest

from motif_jax.core import cluster
from motif_jax.core.cluster import ClusterHosts, HostPosition
from motif_jax.core.devices import hosts
from motif_jax.core.devices.hosts import Hosts, connected
from motif_jax.core.errors import UserError
from motif_jax.core.locks import FolderLock
from motif_jax.rl import settings
from tests.play.agent_runs import recall_config, recall_training

SLURM = {"SLURM_JOB_ID": "70003", "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}
SLURM["SLURM_STEP_NODELIST"] = "gpu[03-05,09]"
SEVERAL = {"hosts__coordinator": "n:4000", "hosts__count": 3}


NOWHERE = HostPosition(None, 0, 1)
SLURM_ALONE = {**SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}


@pytest.mark.parametrize(
    ("environment", "arguments", "expected"),
    [
        ({}, (None, None, None), NOWHERE),
        (SLURM, (None, None, None), NOWHERE),
        ({}, ("localhost:1", 1, 0), NOWHERE),
        ({}, ("node1:4000", 3, 2), HostPosition("node1:4000", 2, 3)),
        (SLURM, ("slurm", None, None), HostPosition("slurm", 2, 4)),
        (SLURM_ALONE, ("slurm", None, None), NOWHERE),
    ],
)
def test_a_position_comes_from_the_config_or_from_slurm(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    arguments: Any,
    expected: HostPosition,
) -> None:
    monkeypatch.setattr(cluster.os, "environ", environment)
    coordinator, count, index = arguments

    keys = ClusterHosts(coordinator=coordinator, count=count, index=index)

    assert keys.position() == expected


def test_a_batch_divides_over_hosts_and_their_devices() -> None:
    config = settings.check(recall_training(batch_size=8 * 12, **SEVERAL, hosts__index=1))

    settings.check_devices(config)

    assert settings.columns(config) == 4


def test_a_port_in_use_is_refused_before_jax_starts() -> None:
    with socket.create_server(("", 0)) as server:
        here = f"localhost:{server.getsockname()[1]}"

        with pytest.raises(UserError, match=f"coordinator={here}: port .* cannot be used here"):
            hosts.join(HostPosition(here, 0, 2), recall_config(hosts__coordinator=here).hosts)


@pytest.fixture
def recorded_calls(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Calls of jax and of timers in place of jax and timers, on the third of Slurm's four nodes."""
    calls = Mock()
    monkeypatch.setattr(cluster.os, "environ", SLURM)
    monkeypatch.setattr(hosts, "jax", calls)
    monkeypatch.setattr(hosts, "leave_at_once_on_error", contextlib.nullcontext)
    monkeypatch.setattr(hosts, "CONNECT_SECONDS", 7.25)
    monkeypatch.setattr(hosts.threading, "Timer", calls.Timer)
    return calls


TIMES = {"heartbeat_timeout_seconds": 12.5}
SECOND_OF_TWO = {"count": 2, "index": 1}


@pytest.mark.parametrize(
    ("options", "here", "named"),
    [
        ({"coordinator": "slurm"}, (None, 4, 2), ("slurm", None)),
        # Only a run on one machine listens to this machine alone.
        (
            {"coordinator": "localhost:1", **SECOND_OF_TWO},
            ("localhost:1", 2, 1),
            ("deactivate", "localhost:1"),
        ),
        (
            {"coordinator": "node1:4000", **SECOND_OF_TWO},
            ("node1:4000", 2, 1),
            ("deactivate", None),
        ),
    ],
)
def test_a_host_joins_the_others_by_jax(
    recorded_calls: Mock, options: dict[str, Any], here: Any, named: Any
) -> None:
    with connected(ClusterHosts(**options, **TIMES)):
        pass

    recorded_calls.distributed.initialize.assert_called_once_with(
        *here,
        local_device_ids=[],
        cluster_detection_method=named[0],
        initialization_timeout=68,
        heartbeat_timeout_seconds=13,
        coordinator_bind_address=named[1],
        shutdown_timeout_seconds=13,
    )


@pytest.mark.parametrize(
    ("options", "number", "count", "meeting_point"),
    [
        ({"coordinator": "slurm"}, 2, 4, "Slurm's first node"),
        ({"coordinator": "node1:4000", **SECOND_OF_TWO}, 1, 2, "node1:4000"),
    ],
)
def test_hosts_that_do_not_meet_in_time_say_where(
    recorded_calls: Mock, options: dict[str, Any], number: int, count: int, meeting_point: str
) -> None:
    with connected(ClusterHosts(**options, **TIMES)):
        pass

    message = (
        f"error: host {number}: the {count} hosts of the run did not all meet at {meeting_point} within 7.25 s: start all of them at about "
        "the same time, with the same config.hosts.count, and each with a config.hosts.index of its own"
    )
    assert recorded_calls.Timer.mock_calls[0] == call(7.25, hosts.leave, (message, 2))
    assert recorded_calls.Timer.return_value.daemon is True


def test_the_time_to_meet_runs_while_hosts_join(recorded_calls: Mock) -> None:
    with connected(ClusterHosts(coordinator="node1:4000", **SECOND_OF_TWO, **TIMES)):
        pass

    names = [name for name, _, _ in recorded_calls.mock_calls]
    assert names == [
        "Timer",
        "Timer().start",
        "config.update",
        "distributed.initialize",
        "Timer().cancel",
    ]


def test_jax_leaves_the_request_to_stop_to_the_run(recorded_calls: Mock) -> None:
    with connected(ClusterHosts(coordinator="node1:4000", **SECOND_OF_TWO, **TIMES)):
        pass

    recorded_calls.config.update.assert_called_once_with("jax_enable_preemption_service", False)


@pytest.fixture
def on_hosts(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[Hosts], Any]], list[Any]]:
    """Gives what a function says on each of so many hosts, which are threads; of a UserError its
    text.
    """

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


def test_one_host_agrees_with_itself(tmp_path: Path) -> None:
    here = Hosts()

    assert (here.index, here.count, here.is_first) == (0, 1, True)
    assert here.gather([1]) == [[1]]
    assert here.sum([7]) == [7]
    assert here.any(True)
    assert not here.any(False)
    assert here.on_first(lambda: 3) == 3
    # One host has no other to share a folder with.
    here.require_shared(tmp_path / "none")


@pytest.fixture
def words() -> list[Any]:
    """Values of three hosts of different lengths, the last longer than the smallest message."""
    return ["a", {"b": [1, None]}, random.Random(0).randbytes(400).hex()]


def test_all_hosts_gather_the_values_of_all(on_hosts: Any, words: list[Any]) -> None:
    assert on_hosts(3, lambda host: host.gather(words[host.index])) == [words] * 3


def test_all_hosts_sum_number_by_number(on_hosts: Any) -> None:
    assert on_hosts(3, lambda host: host.sum([host.index, 4, -1])) == [[3, 12, -3]] * 3


@pytest.mark.parametrize(
    ("first", "other", "expected"), [(False, True, True), (True, True, True), (False, False, False)]
)
def test_what_is_true_on_any_host_is_true_on_all(
    on_hosts: Any, first: bool, other: bool, expected: bool
) -> None:
    assert on_hosts(2, lambda host: host.any(other if host.index else first)) == [expected] * 2


def test_the_first_host_works_for_all(on_hosts: Any) -> None:
    work = Mock(return_value=[7])

    assert on_hosts(2, lambda host: host.on_first(work)) == [[7], [7]]

    work.assert_called_once_with()


def test_the_first_host_speaks_for_all(on_hosts: Any, capsys: pytest.CaptureFixture[str]) -> None:
    on_hosts(2, lambda host: host.say(f"host {host.index}"))

    assert capsys.readouterr().out == "host 0\n"


def test_hosts_lock_a_folder_together(on_hosts: Any, tmp_path: Path) -> None:
    def locked_from_inside(host: Hosts) -> None:
        with host.locked(tmp_path):
            with pytest.raises(UserError):
                FolderLock(tmp_path).__enter__()
            host.sum([0])

    assert on_hosts(2, locked_from_inside) == [None, None]


def test_a_folder_held_by_another_run_is_refused_everywhere(on_hosts: Any, tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        with pytest.raises(UserError) as caught:
            FolderLock(tmp_path).__enter__()

        lines = on_hosts(2, lambda host: host.locked(tmp_path).__enter__())

    assert lines == [str(caught.value)] * 2


def test_hosts_that_see_different_values_say_so(on_hosts: Any) -> None:
    lines = on_hosts(3, lambda host: host.require_equal(min(host.index, 1), "w"))

    assert lines == ["w: host 0 sees 0, host 1 sees 1"] * 3


def test_hosts_that_see_equal_values_go_on(on_hosts: Any) -> None:
    assert on_hosts(3, lambda host: host.require_equal([1], "w")) == [None] * 3


def require_alike(host: Hosts) -> None:
    """The configs of hosts 0 and 1 differ in the index alone; host 2 has another seed."""
    host.require_alike(recall_config(hosts__index=host.index, seed=3 + host.index // 2, **SEVERAL))


def test_configs_may_differ_in_the_index_of_the_host(on_hosts: Any) -> None:
    assert on_hosts(2, require_alike) == [None] * 2


def test_configs_that_differ_are_named_on_all_hosts(on_hosts: Any) -> None:
    line = "the hosts of a run need the same config: seed: 3 on host 0, 4 on host 2"

    assert on_hosts(3, require_alike) == [line] * 3


def test_hosts_with_different_numbers_of_devices_say_so(
    on_hosts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([2, 3])
    monkeypatch.setattr(hosts.jax, "local_device_count", lambda: next(counts))

    line = on_hosts(2, require_alike)[0]

    # Which host asks first is not decided.
    assert line in {
        f"the hosts of a run need equally many devices: host 0 sees {first}, host 1 sees {other}"
        for first, other in ((2, 3), (3, 2))
    }


def test_a_file_of_another_host_may_come_late(tmp_path: Path) -> None:
    file = tmp_path / "file"
    later = threading.Timer(0.3, file.touch)
    later.start()

    assert hosts.appears(file, 60.0)

    later.join()


def test_the_wait_for_a_missing_file_has_a_limit(tmp_path: Path) -> None:
    assert not hosts.appears(tmp_path / "none", 0.0)


def test_hosts_of_different_folders_say_so(on_hosts: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    folders = [tmp_path / "run", tmp_path / "run", other, tmp_path / "none"]
    answers = on_hosts(
        len(folders), lambda host: host.require_shared(folders[host.index], seconds=0.5)
    )
    node = socket.gethostname()
    assert set(answers) == {
        f"--workdir must lie on a file system that all hosts share: host 2 ({other} on {node}) and host 3 ({tmp_path}/none "
        f"on {node}) cannot see what host 0 ({tmp_path}/run on {node}) writes"
    }
    assert [list(folder.iterdir()) for folder in (tmp_path / "run", other)] == [[], []]


def test_hosts_of_one_folder_go_on(on_hosts: Any, tmp_path: Path) -> None:
    assert on_hosts(2, lambda host: host.require_shared(tmp_path)) == [None] * 2
