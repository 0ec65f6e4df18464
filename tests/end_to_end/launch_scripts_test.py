"""The scripts of launch/ that start jobs and servers, with a pretended Slurm, a pretended vLLM and
a pretended stage.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.pretended_programs import Run, pretended
from tests.processes import status_of, wait_until

pytestmark = pytest.mark.extra
SCRIPTS = ("annotate.sbatch", "train_agent.sbatch", "train.sbatch")
# What the scripts want to be told.
GIVEN = {"DATASET": "data", "CONFIG": "configs/train_text.py"}
EIGHT_GPUS = {"SLURM_NTASKS_PER_NODE": "8", "SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "16"}
# A server on one GPU beside a training on two, of which a step is told. The pretended server is no
# step, whose flags would be taken for the training's.
TWO_COMPONENTS = {
    "MODEL": "models/Tiny-Judge/", "LLM_SERVER": "bash launch/llm_server.sh", "SLURM_GPUS_ON_NODE": "1", "FAKE_GPUS": "2",
    "SLURM_NTASKS_PER_NODE_HET_GROUP_1": "1", "SLURM_CPUS_PER_TASK_HET_GROUP_1": "8", "SLURM_JOB_NUM_NODES_HET_GROUP_1": "1",
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with pretended(tmp_path) as pretence:
        yield pretence


def test_each_gpus_process_has_its_share_of_the_node(run: Run) -> None:
    program = run.start("train_agent.sbatch", FAKE_CODE="0", SLURM_JOB_NUM_NODES="4", **EIGHT_GPUS)
    assert program.wait() == 0, program.text()
    flags = {
        "--ntasks-per-node=8",
        "--cpus-per-task=16",
        "--gpus-per-task=1",
        "--kill-on-bad-exit=0",
    }
    assert set(run.lines("srun_flags")) == flags
    assert "--config.hosts.coordinator=slurm" in run.lines("arguments")
    assert "--config.actors.workers=14" in run.lines("arguments"), (
        "two cores are left, whether Slurm binds cores or not"
    )
    assert not [argument for argument in run.lines("arguments") if "devices" in argument]


@pytest.mark.parametrize("script", ["train_agent.sbatch", "train.sbatch"])
def test_gpus_that_no_process_would_use_are_refused(run: Run, script: str) -> None:
    size = {"SLURM_NTASKS_PER_NODE": "3", "SLURM_GPUS_ON_NODE": "8"}
    program = run.start(script, FAKE_CODE="0", **size, **GIVEN)
    assert program.wait() == 2
    assert "the node's 8 GPUs do not divide over its 3 processes" in program.text()


@pytest.mark.parametrize(
    ("gpus", "cores", "workers"),
    [("4", "17", ["12"]), ("4", "5", ["4"]), ("1", "2", ["1"]), ("0", "16", ["15"]), ("4", "", [])],
)
def test_actors_are_as_many_as_slurm_gave_cores(
    run: Run, gpus: str, cores: str, workers: list[str]
) -> None:
    size = {"SLURM_NTASKS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": gpus, "SLURM_CPUS_PER_TASK": cores}
    assert (
        run.start("train_agent.sbatch", "--config.actors.workers=3", FAKE_CODE="0", **size).wait()
        == 0
    )
    flags = [argument for argument in run.lines("arguments") if "workers" in argument]
    assert flags == [f"--config.actors.workers={number}" for number in (*workers, "3")], (
        "the user's own flag comes last, and counts"
    )


@pytest.mark.parametrize(
    ("flags", "config", "is_off"),
    [
        ((), "", True),
        (("--config.reward.dir=runs/r",), "", False),
        (("--config.seed=1",), "configs/train_agent.py:laptop", True),
        (("--config.seed=1",), "configs/oni.py", False),
    ],
)
def test_a_reward_that_a_flag_or_config_names_stays_on(
    run: Run, flags: tuple[str, ...], config: str, is_off: bool
) -> None:
    size = {"SLURM_NTASKS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": "1", "SLURM_CPUS_PER_TASK": "4"}
    size |= {"CONFIG": config} if config else {}
    assert run.start("train_agent.sbatch", *flags, FAKE_CODE="0", **size).wait() == 0
    assert ("--config.reward.intrinsic_coefficient=0" in run.lines("arguments")) == is_off


def test_an_array_trains_one_agent_for_each_seed(run: Run) -> None:
    program = run.start(
        "train_agent.sbatch", "--config.rollout=16", FAKE_CODE="0", REWARD="runs/r", SLURM_ARRAY_TASK_ID="4",
        SLURM_ARRAY_JOB_ID="9", **EIGHT_GPUS,
    )  # fmt: skip
    assert program.wait() == 0, program.text()
    flags = "--config.reward.dir=runs/r --config.seed=4 --config.hosts.coordinator=slurm --config.actors.workers=14"
    folder = f"--workdir={run.folder}/run/seed-4"
    expected = ["-m", "motif_jax.launch", "--config=configs/train_agent.py", folder, *flags.split()]
    assert run.lines("arguments") == [*expected, "--config.rollout=16"]
    assert run.lines("requeued") == []


@pytest.mark.parametrize(
    ("first", "last", "count", "code"),
    [("0", "15", "16", 0), ("1", "16", "16", 2), ("0", "30", "16", 2)],
)
def test_an_array_that_leaves_parts_out_is_refused(
    run: Run, first: str, last: str, count: str, code: int
) -> None:
    array = {"MIN": first, "MAX": last, "COUNT": count, "ID": "3"}
    variables = {f"SLURM_ARRAY_TASK_{name}": value for name, value in array.items()}
    program = run.start("annotate.sbatch", FAKE_CODE="0", **variables, **GIVEN)

    assert program.wait() == code, program.text()
    assert run.has("arguments") == (code == 0)
    assert ("error: --array=" in program.text()) == (code == 2)


def test_language_agents_share_environments_and_devices(run: Run) -> None:
    script = "train_language_agent.sbatch"
    model = {"MODEL": "models/t5", "FAKE_CODE": "0"}
    program = run.start(
        script, SLURM_ARRAY_TASK_ID="2", SLURM_ARRAY_JOB_ID="9", **EIGHT_GPUS, **model
    )
    assert program.wait() == 0, program.text()
    settings = (
        "hosts.coordinator=slurm actors.workers=14 network.model=models/t5 seed=2 actors.workers=1"
    )
    flags = [f"--config.{flag}" for flag in f"{settings} actors.envs_per_worker=4".split()]
    folder = f"--workdir={run.folder}/run/seed-2"
    assert run.lines("arguments")[2:] == [
        "--config=configs/train_language_agent.py",
        folder,
        *flags,
    ]
    one = {"SLURM_NTASKS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "16"}
    program = run.start(script, "--config.sharding.fsdp=8", **one, **model)
    assert program.wait() == 0, program.text()
    settings = "actors.workers=1 actors.envs_per_worker=32 devices.actor=first sharding.fsdp=8"
    assert run.lines("arguments")[-4:] == [f"--config.{flag}" for flag in settings.split()]
    program = run.start(script, ENVIRONMENTS="30", **EIGHT_GPUS, **model)
    assert program.wait() == 2
    assert "ENVIRONMENTS=30 do not divide over 8 processes" in program.text()


@pytest.mark.parametrize(
    ("script", "code", "again"),
    [(script, "134", True) for script in SCRIPTS]
    + [("train.sbatch", code, False) for code in ("0", "2", "75")],
)
def test_an_unfinished_job_is_queued_again(run: Run, script: str, code: str, again: bool) -> None:
    """A stage that stops although the batch shell had no signal was cancelled, or somebody stopped
    it.
    """
    # However often the end of its time has queued it again before.
    program = run.start(
        script, FAKE_CODE=code, SLURM_JOB_NUM_NODES="2", SLURM_RESTART_COUNT="9", **GIVEN
    )
    assert program.wait() == int(code), program.text()
    assert run.lines("requeued") == (["requeue 31"] if again else [])


def test_a_job_that_keeps_crashing_is_given_up(run: Run) -> None:
    def end(code: str, number: str = "123", **more: str) -> int:
        """How often it was queued again after one more end."""
        program = run.start("train.sbatch", FAKE_CODE=code, SLURM_JOB_ID=number, **GIVEN, **more)
        assert program.wait() == int(code), program.text()
        return len(run.lines("requeued"))

    assert [end("134") for _ in range(5)] == [1, 2, 3, 3, 3]
    assert end("1", number="124") == 4, "another job on the same folder"
    assert end("1", number="124", MAX_RESTARTS="1") == 4
    assert end("75", number="124") == 4
    assert not (run.folder / "run" / "crashes").exists()
    assert end("1", number="124", MAX_RESTARTS="1") == 5, "it had come to an orderly end"


@pytest.mark.parametrize(
    ("script", "number", "again"),
    [(script, signal.SIGUSR1, True) for script in SCRIPTS]
    + [("train.sbatch", signal.SIGTERM, False)],
)
def test_a_signal_reaches_the_stage(
    run: Run, script: str, number: signal.Signals, again: bool
) -> None:
    """Ahead of the end of its time a job is queued again; Slurm sees to one that it takes the node
    from.
    """
    program = run.start(script, **GIVEN)
    run.wait_for_stage()
    program.send(number)
    assert program.wait(240) == 75, program.text()
    assert run.lines("requeued") == (["requeue 31"] if again else [])


@pytest.mark.parametrize(
    ("job", "again"),
    [
        ("JobState=RUNNING PreemptTime=2026-11-28T12:00:00", True),
        ("JobState=RUNNING PreemptTime=None", False),
        ("JobState=CANCELLED PreemptTime=2026-11-28T12:00:00", False),
    ],
)
def test_a_job_that_saves_before_its_preemption_is_requeued(
    run: Run, job: str, again: bool
) -> None:
    """Slurm's TERM reaches the step alone, and Slurm queues no job again that has ended by itself
    within its grace.
    """
    (run.folder / "job").write_text(job)
    program = run.start("train.sbatch", **GIVEN)
    run.wait_for_stage()
    os.kill(int((run.folder / "task_pid").read_text()), signal.SIGTERM)
    assert program.wait(240) == 75, program.text()
    assert run.has("saved")
    assert run.lines("requeued") == (["requeue 31"] if again else [])


def page(run: Run) -> int:
    return status_of(f"http://127.0.0.1:{run.port}/v1/models")


def test_training_begins_after_the_servers_answer_and_both_end(run: Run) -> None:
    program = run.start("oni.sh", "models/Tiny-Judge", "--config.seed=3", FAKE_CODE="0")
    # Its model page answers all the while. Whoever asks a second time has seen that the first was
    # no answer.
    wait_until(lambda: run.has("refused") and len(run.lines("refused")[0]) >= 2, "two questions")
    assert page(run) == 200
    assert not run.has("arguments"), "a model page is no answer"
    run.touch("ready")
    assert program.wait() == 0, program.text()
    run.nothing_is_left()
    asked = f"openai.base_url=http://127.0.0.1:{run.port}/v1 openai.model=Tiny-Judge"
    flags = [f"--config.annotator.{flag}" for flag in f"kind=openai {asked}".split()]
    folder = f"--workdir={run.folder}/run"
    assert run.lines("arguments")[2:] == [
        "--config=configs/oni.py",
        folder,
        *flags,
        "--config.seed=3",
    ]
    served = (
        f"serve models/Tiny-Judge --host 127.0.0.1 --port {run.port} --served-model-name Tiny-Judge"
    )
    assert run.lines("vllm_arguments") == [served]


def test_a_dead_server_restarts_and_a_stopped_training_saves(run: Run) -> None:
    run.touch("ready")
    program = run.start("oni.sh", "judge")
    run.wait_for_stage()

    def server() -> int:
        return int((run.folder / "server_pid").read_text())

    for _ in range(2):
        before = server()
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: page(run) == 200 and server() != before, "another server")  # noqa: B023
    assert program.process.poll() is None
    assert "ended with 137: started again" in program.text()
    program.send(signal.SIGUSR1)
    assert program.wait() == 75, program.text()
    run.nothing_is_left()
    assert run.has("saved")


def test_before_the_first_answer_a_fault_ends_the_start(run: Run) -> None:
    run.touch("dead")
    program = run.start("oni.sh", "judge")
    assert program.wait() == 2
    assert "error: the server of judge ended before its first answer" in program.text()
    assert "CUDA out of memory" in program.text()
    run.nothing_is_left()
    (run.folder / "dead").unlink()
    program = run.start("oni.sh", "judge", LLM_WAIT_SECONDS="2")
    assert program.wait() == 2
    assert "has not answered a question within LLM_WAIT_SECONDS=2" in program.text()
    run.nothing_is_left()
    assert not run.has("arguments")


def test_a_job_of_two_components(run: Run) -> None:
    run.touch("ready")
    program = run.start("oni.sbatch", "--config.seed=3", FAKE_CODE="134", **TWO_COMPONENTS)
    assert program.wait() == 134, program.text()
    run.nothing_is_left()
    arguments = run.lines("arguments")
    assert f"--config.annotator.openai.base_url=http://127.0.0.1:{run.port}/v1" in arguments
    assert "--config.annotator.openai.model=Tiny-Judge" in arguments
    assert "--config.devices.learner=all" in arguments, (
        "the GPUs of the second component, not of the server's"
    )
    assert arguments[-1] == "--config.seed=3"
    assert "--het-group=1" in run.lines("srun_flags")
    assert run.has("requeued")
