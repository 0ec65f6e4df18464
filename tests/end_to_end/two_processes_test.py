"""A run of two processes with two devices each: killed, stopped, continued, by two processes and by one."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from motif_jax.support.checkpoints import Checkpoints
from motif_jax.support.metrics import read_metrics
from tests.processes import (
    Program,
    descendants,
    ended,
    free_port,
    launch,
    process_table,
    shared_memory,
    still_there,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
HEARTBEAT_SECONDS = 10
FOREVER = 10**9
# Environments of each host: the second host's have numbers from here on.
ENVIRONMENTS = 4


class Run:
    """A run folder and the ways to start and watch it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.logs, self.programs = folder / "run", folder, []

    def start(self, steps: int, hosts: int, *more: str) -> list[Program]:
        """Starts one process with one device, or two with two each."""
        port, started = free_port(), []
        flags = [
            "--config.batch_size=64",
            "--config.rollout=8",
            "--config.network.hidden_size=16",
            "--config.network.flat_sizes=(16,)",
            "--config.actors.workers=2",
            f"--config.actors.envs_per_worker={ENVIRONMENTS // 2}",
            "--config.save_every_steps=200",
            "--config.log_every_seconds=0.5",
            "--config.compile_cache=",
            f"--config.train_for_env_steps={steps}",
            f"--config.hosts.heartbeat_timeout_seconds={HEARTBEAT_SECONDS}.0",
            *more,
        ]
        for index in range(hosts):
            own = [] if hosts == 1 else [
                f"--config.hosts.coordinator=localhost:{port}",
                f"--config.hosts.count={hosts}",
                f"--config.hosts.index={index}",
                "--config.devices.cpu_count=2",
            ]  # fmt: skip
            log = self.logs / f"log_{len(self.programs)}"
            started.append(launch(self.folder, "train_agent.py:recall", *flags, *own, log=log))
            self.programs.append(started[-1])
        return started

    def newest(self) -> int:
        """The newest checkpoint's step, 0 if there is none."""
        if not (self.folder / "checkpoints").is_dir():
            return 0
        with Checkpoints(self.folder / "checkpoints", read_only=True) as checkpoints:
            return checkpoints.latest() or 0

    def wait_for_checkpoint_after(self, step: int, programs: list[Program]) -> None:
        """Returns when there is a newer one than `step`."""

        def there() -> bool:
            codes = [program.process.poll() for program in programs]
            assert codes == [None] * len(codes), [program.text()[-3000:] for program in programs]
            return self.newest() > step

        wait_until(there, f"a checkpoint after {step}")

    def episodes(self) -> list[dict[str, float]]:
        """All lines of episodes.jsonl."""
        return [json.loads(line) for line in (self.folder / "episodes.jsonl").read_text().splitlines()]


def kill_and_check(run: Run, programs: list[Program], victim: int) -> None:
    """Kills one host: the other ends by itself in time, and nothing of either is left."""
    everything = {p for program in programs for p in (program.pid, *descendants(program.pid))}
    assert len(everything) == 6, "two hosts with two actors each"
    programs[victim].send(signal.SIGKILL)
    assert programs[victim].wait() == -signal.SIGKILL
    try:
        code = programs[1 - victim].wait(2 * HEARTBEAT_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail("the other host goes on without the one that was killed")
    assert code not in (0, 75)
    wait_until(lambda: not still_there(everything), f"{everything} end; there are {process_table()}", 20)


def test_two_processes_are_killed_stopped_and_continued_by_two_and_by_one(tmp_path: Path) -> None:
    run, memory = Run(tmp_path), shared_memory()
    with ended(run.programs):
        # One process of one device begins.
        [program] = run.start(200, hosts=1)
        assert program.wait() == 0, program.text()
        step = run.newest()
        assert step >= 200

        # Two processes of two devices go on; a host that dies, the first or the other, ends both.
        for victim in (1, 0):
            programs = run.start(FOREVER, hosts=2)
            run.wait_for_checkpoint_after(step, programs)
            kill_and_check(run, programs, victim)
            assert run.newest() > step
            step = run.newest()

        # A stop that reaches one host stops both after the same update, with a checkpoint.
        programs = run.start(FOREVER, hosts=2)
        run.wait_for_checkpoint_after(step, programs)
        programs[1].send(signal.SIGUSR1)
        codes = [program.wait() for program in programs]
        assert codes == [75, 75], [program.text()[-3000:] for program in programs]
        stopped = run.newest()
        last = list(read_metrics(run.folder))[-1]
        assert last["step"] == stopped > step
        assert last["actors/restarts"] == 0

        # One process of one device takes the checkpoint of the two up.
        [program] = run.start(stopped + 100, hosts=1)
        assert program.wait() == 0, program.text()
    assert stopped + 100 <= run.newest() <= stopped + 100 + 64
    check_curves(run)
    assert shared_memory() <= memory


def check_curves(run: Run) -> None:
    """One writer: steps ascend, and every host's episodes are there once."""
    steps = [row["step"] for row in read_metrics(run.folder)]
    assert steps == sorted(set(steps))
    assert steps[-1] == run.newest()
    played = [(row["env"], row["episode"]) for row in run.episodes()]
    assert len(set(played)) == len(played)
    assert {env for env, _ in played} == set(range(2 * ENVIRONMENTS))
    assert all(row["step"] <= run.newest() for row in run.episodes())


def test_hosts_of_different_configs_say_so_and_end(tmp_path: Path) -> None:
    programs: list[Program] = []
    port = free_port()
    with ended(programs):
        for index in range(2):
            flags = [f"--config.hosts.coordinator=localhost:{port}", "--config.hosts.count=2"]
            flags += [f"--config.hosts.index={index}", f"--config.seed={index}"]
            log = tmp_path / f"log_{index}"
            programs.append(launch(tmp_path / "run", "train_agent.py:recall", *flags, log=log))
        for program in programs:
            assert program.wait() == 2
            [line] = program.text().splitlines()
            assert line == "error: the hosts of a run need the same config: seed: 0 on host 0, 1 on host 1"
    assert not (tmp_path / "run").exists()
