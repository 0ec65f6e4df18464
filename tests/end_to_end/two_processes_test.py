"""A run of two processes with two devices each: killed, stopped, continued, by two processes and by
one.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from motif_jax.core.metrics import read_metrics
from tests.force.outcomes import rows_of
from tests.processes import (
    Program,
    checkpoint_steps,
    descendants,
    ended,
    free_port,
    launch,
    launch_hosts,
    still_there,
    unused_shared_memory,
    wait_until,
)

pytestmark = [pytest.mark.extra, pytest.mark.timeout(900)]
HEARTBEAT_SECONDS = 10
# Where no host is lost, none is to be missed on a busy machine.
PATIENT_SECONDS = 60
# Far more than a process takes to be gone when it has been told to, on a machine with other things
# to do, and far less than jax waits where it is told no number of seconds (100).
EXIT_SECONDS = 60
FOREVER = 10**9
# Environments of each host: the second host's have numbers from here on.
ENVIRONMENTS = 4


class Run:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "run"
        self.logs = folder
        self.programs = []

    def start(self, steps: int, hosts: int, heartbeat: int = PATIENT_SECONDS) -> list[Program]:
        """Starts one process with one device, or two with two each, which may be silent for
        `heartbeat` seconds.
        """
        flags = [
            "--config.batch_size=64", "--config.rollout=8", "--config.network.hidden_size=16", "--config.network.flat_sizes=(16,)",
            "--config.actors.workers=2", f"--config.actors.envs_per_worker={ENVIRONMENTS // 2}", "--config.save_every_steps=200",
            "--config.log_every_seconds=0.5", f"--config.train_for_env_steps={steps}",
            f"--config.hosts.heartbeat_timeout_seconds={heartbeat}.0",
            f"--config.profile.server_port={free_port()}",
        ]  # fmt: skip
        log = self.logs / f"log_{len(self.programs)}"
        started = launch_hosts(
            hosts, self.folder, "train_agent.py:recall", *flags, log=log,
            JAX_NUM_CPU_DEVICES=str(hosts),
        )  # fmt: skip
        self.programs += started
        return started

    def newest(self) -> int:
        return max([0, *checkpoint_steps(self.folder)])

    def wait_for_checkpoint_after(self, step: int, programs: list[Program]) -> None:
        def there() -> bool:
            codes = [program.process.poll() for program in programs]
            assert codes == [None] * len(codes), [program.text()[-3000:] for program in programs]
            return self.newest() > step

        wait_until(there, f"a checkpoint after {step}")

    def start_to_lose(self, step: int) -> list[Program]:
        """Two hosts that have a checkpoint after `step`, of which one is to be missed soon.

        A busy machine may let them miss each other before that: then they are started again.
        """
        for _ in range(3):
            programs = self.start(FOREVER, hosts=2, heartbeat=HEARTBEAT_SECONDS)
            try:
                self.wait_for_checkpoint_after(step, programs)
            except AssertionError:
                texts = [program.text() for program in programs]
                if not any("heartbeat" in text for text in texts):
                    raise
                for program in programs:
                    assert program.wait(HEARTBEAT_SECONDS + EXIT_SECONDS) not in (0, 75), (
                        program.text()
                    )
            else:
                return programs
        pytest.fail("the hosts have missed each other three times")


def end_of(survivor: Program) -> int:
    """The exit code of the other host, which ends by itself in time."""
    try:
        return survivor.wait(HEARTBEAT_SECONDS + EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail("the other host continues without the one that died")


def lose_and_check(run: Run, programs: list[Program], victim: int, how: signal.Signals) -> None:
    """One host dies or falls silent: the other ends by itself in time, and nothing of either is
    left.
    """
    lost = programs[victim]
    survivor = programs[1 - victim]
    survivors, everything = ({p.pid, *descendants(p.pid)} for p in (survivor, lost))
    # A host, the server that its actors are forked from, multiprocessing's tracker, and a process
    # for each of their groups.
    assert len(survivors) == len(everything) == 7
    lost.send(how)
    if how == signal.SIGKILL:
        assert lost.wait() == -signal.SIGKILL
    assert end_of(survivor) not in (0, 75)
    wait_until(lambda: not still_there(survivors), f"{survivors} end", 90)
    if how == signal.SIGSTOP:
        lost.send(signal.SIGCONT)  # it was not dead: it finds that the others are gone
        assert end_of(lost) not in (0, 75)
    wait_until(lambda: not still_there(everything), f"{everything} end", 90)


def test_runs_of_two_processes_resume_with_two_or_one(tmp_path: Path) -> None:
    run = Run(tmp_path)
    memory = unused_shared_memory()
    with ended(run.programs):
        # One process of one device begins.
        [program] = run.start(200, hosts=1)
        assert program.wait() == 0, program.text()
        step = run.newest()
        assert step >= 200

        # Two processes of two devices continue; a host that dies, or is silent, ends both.
        for victim, how in ((1, signal.SIGKILL), (0, signal.SIGSTOP)):
            programs = run.start_to_lose(step)
            lose_and_check(run, programs, victim, how)
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
    # One writer: steps ascend, and every host's episodes are there once.
    steps = [row["step"] for row in read_metrics(run.folder)]
    assert steps == sorted(set(steps))
    assert steps[-1] == run.newest()
    episodes = rows_of(run.folder / "episodes.jsonl")
    played = [(row["env"], row["episode"]) for row in episodes]
    assert len(set(played)) == len(played)
    assert {env for env, _ in played} == set(range(2 * ENVIRONMENTS))
    assert all(row["step"] <= run.newest() for row in episodes)
    wait_until(lambda: unused_shared_memory() <= memory, "no shared memory is left", 90)


def test_hosts_of_different_configs_say_so_and_end(tmp_path: Path) -> None:
    port = free_port()
    programs = []
    with ended(programs):
        for index in range(2):
            flags = [
                f"--config.hosts.coordinator=localhost:{port}",
                f"--config.hosts.index={index}",
            ]
            flags += [
                "--config.hosts.count=2",
                f"--config.seed={index}",
                "--config.actors.workers=1",
            ]
            log = tmp_path / f"log_{index}"
            programs.append(launch(tmp_path / "run", "train_agent.py:recall", *flags, log=log))
        assert [program.wait() for program in programs] == [2, 2]
    for program in programs:
        line = "error: the hosts of a run need the same config: seed: 0 on host 0, 1 on host 1"
        assert line in program.text().splitlines()
    assert not (tmp_path / "run").exists()
