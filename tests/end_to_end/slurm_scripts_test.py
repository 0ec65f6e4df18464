"""The Slurm files, run as shell scripts with a pretended srun and scontrol."""

from __future__ import annotations

import os
import re
import signal
import stat
from pathlib import Path

import pytest

from tests.compiling import QUICKLY
from tests.end_to_end.slurm_programs import PYTHON, SCONTROL, SRUN
from tests.processes import REPOSITORY, Program, ended, wait_until

pytestmark = pytest.mark.extra
SCRIPTS = ["annotate.sbatch", "train_agent.sbatch", "train.sbatch"]
SLURM_VARIABLES = re.compile("^(SLURM|SBATCH)_")


class Job:
    """A folder with the pretended programs, and jobs that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, []
        for name, text in {"srun": SRUN, "scontrol": SCONTROL, "fake_python": PYTHON}.items():
            path = folder / name
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self, script: str, *arguments: str, **environment: str) -> Program:
        """Starts launch/`script` as Slurm's batch shell does."""
        clean = {name: value for name, value in os.environ.items() if not SLURM_VARIABLES.match(name)}
        variables = {
            **clean,
            "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHON": str(self.folder / "fake_python"),
            "FAKE_FOLDER": str(self.folder),
            "SLURM_JOB_ID": "31",
            "SLURM_SUBMIT_DIR": str(REPOSITORY),
            "WORKDIR": str(self.folder / "run"),
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "1",
            **QUICKLY,
            **environment,
        }
        log = self.folder / f"log_{len(self.programs)}"
        program = Program(["bash", f"launch/{script}", *arguments], log, variables)
        self.programs.append(program)
        return program

    def requeued(self) -> list[str]:
        """What scontrol was asked."""
        path = self.folder / "requeued"
        return path.read_text().splitlines() if path.exists() else []

    def arguments(self) -> list[str]:
        """What python was given."""
        return (self.folder / "arguments").read_text().splitlines()

    def srun_flags(self) -> set[str]:
        """What srun was told."""
        return set((self.folder / "srun_flags").read_text().splitlines())

    def has_checkpoint(self) -> bool:
        """Whether the run has one."""
        return any(path.name.isdigit() for path in (self.folder / "run").glob("checkpoints/*"))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


EIGHT_GPUS = {"SLURM_NTASKS_PER_NODE": "8", "SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "16"}


def test_every_gpu_has_a_process_with_its_share_of_the_node(job: Job) -> None:
    program = job.start("train_agent.sbatch", FAKE_CODE="0", SLURM_JOB_NUM_NODES="4", **EIGHT_GPUS)
    assert program.wait() == 0, program.text()
    flags = {"--ntasks-per-node=8", "--cpus-per-task=16", "--gpus-per-task=1", "--kill-on-bad-exit=0"}
    assert job.srun_flags() == flags
    assert "--config.hosts.coordinator=slurm" in job.arguments()
    assert "--config.actors.workers=15" in job.arguments(), "a core is left, whether Slurm binds cores or not"
    assert not [argument for argument in job.arguments() if "devices" in argument]


@pytest.mark.parametrize(
    ("gpus", "cores", "workers"),
    [("4", "16", "12"), ("4", "", None)],
)
def test_actors_are_as_many_as_slurm_gave_cores(job: Job, gpus: str, cores: str, workers: str | None) -> None:
    size = {"SLURM_NTASKS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": gpus, "SLURM_CPUS_PER_TASK": cores}
    assert job.start("train_agent.sbatch", "--config.actors.workers=3", FAKE_CODE="0", **size).wait() == 0
    expected = [] if workers is None else [f"--config.actors.workers={workers}"]
    found = [argument for argument in job.arguments() if "workers" in argument]
    assert found == [*expected, "--config.actors.workers=3"], "the user's own flag comes last, and counts"


def test_an_array_trains_one_agent_for_each_seed(job: Job) -> None:
    program = job.start(
        "train_agent.sbatch", "--config.rollout=16", FAKE_CODE="0", REWARD="runs/r", SLURM_ARRAY_TASK_ID="4",
        SLURM_ARRAY_JOB_ID="9", **EIGHT_GPUS,
    )  # fmt: skip
    assert program.wait() == 0, program.text()
    assert job.arguments() == [
        "-m",
        "motif_jax.launch",
        "--config=configs/train_agent.py",
        f"--workdir={job.folder}/run/seed-4",
        "--config.reward.dir=runs/r",
        "--config.seed=4",
        "--config.hosts.coordinator=slurm",
        "--config.actors.workers=15",
        "--config.rollout=16",
    ]
    assert job.requeued() == []


def test_language_agents_share_environments_and_devices(job: Job) -> None:
    script, model = "train_language_agent.sbatch", {"MODEL": "models/t5", "FAKE_CODE": "0"}
    program = job.start(script, SLURM_ARRAY_TASK_ID="2", SLURM_ARRAY_JOB_ID="9", **EIGHT_GPUS, **model)
    assert program.wait() == 0, program.text()
    assert job.arguments()[2:] == [
        "--config=configs/train_language_agent.py",
        f"--workdir={job.folder}/run/seed-2",
        "--config.hosts.coordinator=slurm",
        "--config.actors.workers=15",
        "--config.network.model=models/t5",
        "--config.seed=2",
        "--config.actors.workers=1",
        "--config.actors.envs_per_worker=4",
    ]
    one = {"SLURM_NTASKS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "16"}
    program = job.start(script, "--config.sharding.fsdp=8", **one, **model)
    assert program.wait() == 0, program.text()
    assert job.arguments()[-4:] == [
        "--config.actors.workers=1",
        "--config.actors.envs_per_worker=32",
        "--config.devices.actor=first",
        "--config.sharding.fsdp=8",
    ]
    program = job.start(script, ENVIRONMENTS="30", **EIGHT_GPUS, **model)
    assert program.wait() == 2
    assert "ENVIRONMENTS=30 do not divide over 8 processes" in program.text()


@pytest.mark.parametrize(("code", "again"), [("0", False), ("2", False), ("75", False), ("134", True)])
@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_queued_again(job: Job, script: str, code: str, again: bool) -> None:
    """A stage that stops although the batch shell had no signal had Slurm's own, or somebody's: they see to it."""
    ends = {"FAKE_CODE": code, "DATASET": "data", "CONFIG": "configs/train_text.py", "SLURM_JOB_ID": "123"}
    # However often the end of its time has queued it again before.
    program = job.start(script, SLURM_JOB_NUM_NODES="2", SLURM_RESTART_COUNT="9", **ends)
    assert program.wait() == int(code), program.text()
    assert job.requeued() == (["requeue 123"] if again else [])


def test_a_job_that_crashes_again_and_again_is_given_up(job: Job) -> None:
    def end(code: str, number: str = "123", **more: str) -> int:
        """How often it was queued again after one more end."""
        program = job.start(
            "train.sbatch",
            FAKE_CODE=code,
            DATASET="data",
            CONFIG="configs/train_text.py",
            SLURM_JOB_ID=number,
            **more,
        )
        assert program.wait() == int(code), program.text()
        return len(job.requeued())

    assert [end("134") for _ in range(5)] == [1, 2, 3, 3, 3]
    assert end("1", number="124") == 4, "another job on the same folder"
    assert end("1", number="124", MAX_RESTARTS="1") == 4
    assert end("75", number="124") == 4
    assert not (job.folder / "run" / "crashes").exists()
    assert end("1", number="124", MAX_RESTARTS="1") == 5, "it had come to an orderly end"


@pytest.mark.parametrize(("number", "again"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_signal_reaches_the_stage(job: Job, script: str, number: signal.Signals, again: bool) -> None:
    """Ahead of the end of its time a job is queued again; Slurm sees to one that it takes the node from."""
    program = job.start(
        script, FAKE_CODE="wait", DATASET="data", CONFIG="configs/train_text.py", SLURM_JOB_ID="8"
    )
    with ended([program]):
        wait_until(lambda: (job.folder / "waiting").exists(), "the stage's start")
        program.send(number)
        assert program.wait(240) == 75, program.text()
    assert job.requeued() == (["requeue 8"] if again else [])
