"""Which host this is, and two real processes of two devices each that learn, agree and save together."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from motif_jax.devices import hosts
from motif_jax.devices.hosts import Hosts, connected
from motif_jax.rl import settings
from motif_jax.sections import ClusterHosts
from motif_jax.support import cluster
from motif_jax.support.cluster import HostPosition
from motif_jax.support.errors import UserError
from motif_jax.support.interruption import INTERRUPTED, INTERRUPTED_CODE
from tests.processes import Program, ended, free_port, launch
from tests.rollouts.agent_runs import recall_config, recall_training

SLURM = {
    "SLURM_JOB_ID": "70003",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NODELIST": "gpu[03-05,09]",
}
ALONE = {**SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
SEVERAL = {"hosts__coordinator": "n:4000", "hosts__count": 3}


@pytest.mark.parametrize(
    ("environment", "hosts", "expected"),
    [
        ({}, {}, HostPosition(None, 0, 1)),
        (SLURM, {}, HostPosition(None, 0, 1)),
        ({}, {"coordinator": "localhost:1", "count": 1, "index": 0}, HostPosition(None, 0, 1)),
        ({}, {"coordinator": "node1:4000", "count": 3, "index": 2}, HostPosition("node1:4000", 2, 3)),
        (SLURM, {"coordinator": "slurm"}, HostPosition("slurm", 2, 4)),
        (ALONE, {"coordinator": "slurm"}, HostPosition(None, 0, 1)),
    ],
)
def test_place_comes_from_the_config_or_from_slurm(
    environment: dict[str, str],
    hosts: dict[str, Any],
    expected: HostPosition,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"coordinator": None, "count": None, "index": None, **hosts}
    monkeypatch.setattr(cluster.os, "environ", environment)
    assert cluster.place(**given) == expected


def test_a_batch_divides_over_hosts_and_their_devices() -> None:
    config = settings.check(recall_training(batch_size=8 * 12, **SEVERAL, hosts__index=1))
    assert settings.columns(config) == 4
    settings.check_devices(config)
    # How many devices there are is only known when the hosts are connected.
    other = recall_training(batch_size=8 * 15, devices__learner="0,1", **SEVERAL, hosts__index=1)
    said = "divide over 3 hosts of 2 learner devices and 1 minibatches; it is 15 rollouts"
    with pytest.raises(UserError, match=said):
        settings.check_devices(settings.check(other))


def test_a_port_that_is_taken_is_told_before_jax_starts() -> None:
    with socket.create_server(("", 0)) as taken:
        here = f"localhost:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=f"coordinator={here}: port .* cannot be used here"):
            hosts._join(HostPosition(here, 0, 2), recall_config(hosts__coordinator=here).hosts)


def test_hosts_play_different_games() -> None:
    configs = (settings.resolved(recall_training(hosts__index=index, **SEVERAL)) for index in range(3))
    first = [[actors.first_env for actors in settings.actors_configs(config, 2)] for config in configs]
    assert first == [[0, 6], [12, 18], [24, 30]]


def test_one_host_agrees_with_itself() -> None:
    here = Hosts()
    assert (here.index, here.count, here.is_first) == (0, 1, True)
    assert here.gather({"a": [1]}) == [{"a": [1]}]
    assert here.sum([7, 0]) == [7, 0]
    with pytest.raises(UserError, match="taken"):
        here.on_first(lambda: (_ for _ in ()).throw(UserError("taken")))


class Threads(Hosts):
    """A host that is a thread of the test; `Hosts.gather` by way of a list and a barrier."""

    def __init__(self, index: int, said: list[Any], barrier: threading.Barrier) -> None:
        self.index, self.count, self._said, self._barrier = index, len(said), said, barrier

    def gather(self, value: Any) -> list[Any]:
        self._said[self.index] = value
        self._barrier.wait(240)
        everyone = list(self._said)
        self._barrier.wait(240)
        return everyone


def test_a_file_of_another_host_may_come_late(tmp_path: Path) -> None:
    file = tmp_path / "file"
    later = threading.Timer(0.3, file.touch)
    later.start()
    assert hosts._appears(file, 60.0)
    later.join()
    assert not hosts._appears(tmp_path / "none", 0.0)


def test_hosts_of_different_folders_say_so(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    folders = [tmp_path / "run", tmp_path / "run", other, tmp_path / "none"]
    said, barrier = [None] * len(folders), threading.Barrier(len(folders))

    def answer(index: int) -> str:
        with pytest.raises(UserError) as caught:
            Threads(index, said, barrier).require_shared(folders[index], seconds=0.5)
        return str(caught.value)

    with ThreadPoolExecutor(len(folders)) as threads:
        answers = set(threads.map(answer, range(len(folders))))
    node = socket.gethostname()
    assert answers == {
        f"--workdir must lie on a file system that all hosts share: host 2 ({other} on {node}) and host 3 ({tmp_path}/none "
        f"on {node}) cannot see what host 0 ({tmp_path}/run on {node}) writes"
    }
    assert [list(folder.iterdir()) for folder in (tmp_path / "run", other)] == [[], []]


def test_an_error_of_a_run_of_one_host_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), connected(ClusterHosts()):
        raise ZeroDivisionError


def test_an_interrupted_host_of_several_leaves_at_once_with_one_line() -> None:
    """At a second Ctrl-C: the first one ends all hosts in good order."""
    code = (
        "from motif_jax.devices import hosts\nwith hosts._leave_at_once_on_error(1): raise KeyboardInterrupt"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (INTERRUPTED_CODE, f"{INTERRUPTED}\n")


@pytest.mark.slow
def test_a_host_that_meets_nobody_ends_in_time_with_one_line(tmp_path: Path) -> None:
    programs: list[Program] = []
    with ended(programs):
        for index in range(2):
            flags = [f"--config.hosts.coordinator=localhost:{free_port()}", f"--config.hosts.index={index}"]
            flags += ["--config.hosts.count=2", "--config.hosts.connect_timeout_seconds=1.5"]
            log = tmp_path / f"log_{index}"
            programs.append(launch(tmp_path / "run", "train_agent.py:recall", *flags, log=log))
        assert [program.wait() for program in programs] == [2, 2]
    for index, program in enumerate(programs):
        said = f"error: host {index}: the 2 hosts of the run did not all meet at localhost:"
        assert program.text().startswith(said)
    assert not (tmp_path / "run").exists()
