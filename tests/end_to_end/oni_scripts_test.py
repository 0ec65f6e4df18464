"""The scripts that run a language model's server beside a training, with a pretended vLLM and a pretended training."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.pretended_oni import Run, pretended, start_job
from tests.processes import wait_until

pytestmark = pytest.mark.extra


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with pretended(tmp_path) as made:
        yield made


def page(run: Run) -> int:
    """The status of the model page."""
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{run.port}/v1/models") as reply,
    ):
        return reply.status
    return 0


def test_training_begins_when_the_server_has_answered_and_both_end_together(run: Run) -> None:
    program = run.start("launch/oni.sh", "models/Tiny-Judge", "--config.seed=3", FAKE_CODE="0")
    # Its model page answers all the while. Whoever asks a second time has seen that the first was no answer.
    wait_until(lambda: run.has("refused") and len(run.lines("refused")[0]) >= 2, "two questions")
    assert page(run) == 200
    assert not run.has("arguments"), "a model page is no answer"
    run.touch("ready")
    assert program.wait() == 0, program.text()
    run.nothing_is_left()
    assert run.lines("arguments")[:-1] == [
        "-m",
        "motif_jax.launch",
        "--config=configs/oni.py",
        f"--workdir={run.folder}/run",
        "--config.annotator.kind=openai",
        f"--config.annotator.openai.base_url=http://127.0.0.1:{run.port}/v1",
        "--config.annotator.openai.model=Tiny-Judge",
        "--config.seed=3",
    ]
    served = f"serve models/Tiny-Judge --host 127.0.0.1 --port {run.port} --served-model-name Tiny-Judge"
    assert run.lines("vllm_arguments") == [f"{served}|"]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGKILL])
def test_however_it_is_stopped_the_training_saves_and_nothing_is_left(
    run: Run, number: signal.Signals
) -> None:
    run.touch("ready")
    program = run.start("launch/oni.sh", "judge")
    wait_until(lambda: run.has("arguments"), "the training")
    program.send(number)
    assert program.wait() == (-9 if number == signal.SIGKILL else 75), program.text()
    run.nothing_is_left()
    assert run.has("saved")


def test_a_server_that_dies_is_started_again(run: Run) -> None:
    run.touch("ready")
    program = run.start("launch/oni.sh", "judge")
    wait_until(lambda: run.has("arguments"), "the training")
    for _ in range(2):
        before = run.pid("server_pid")
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: page(run) == 200 and run.pid("server_pid") != before, "another server")  # noqa: B023
    assert program.process.poll() is None
    assert "ended with 137: started again" in program.text()
    program.send(signal.SIGTERM)
    assert program.wait() == 75
    run.nothing_is_left()


def test_a_server_that_hangs_is_started_again(run: Run) -> None:
    run.touch("ready")
    program = run.start("launch/oni.sh", "judge", LLM_CHECKS="2", LLM_ANSWER_SECONDS="1")
    wait_until(lambda: run.has("arguments"), "the training")
    # On a busy machine it may have looked as if it hung before it does.
    killed, told = "does not answer: killed", len(program.text())
    run.touch("hangs")
    wait_until(lambda: killed in program.text()[told:], "its death")
    (run.folder / "hangs").unlink()

    def another() -> bool:
        """Whether there is one that was started after the last death."""
        return len(run.lines("vllm_arguments")) > program.text().count(killed) and page(run) == 200

    wait_until(another, "another server")
    program.send(signal.SIGTERM)
    assert program.wait() == 75
    run.nothing_is_left()


def test_before_the_first_answer_a_fault_ends_the_start(run: Run) -> None:
    run.touch("dead")
    program = run.start("launch/oni.sh", "judge")
    assert program.wait() == 2
    assert "error: the server of judge ended before its first answer" in program.text()
    assert "CUDA out of memory" in program.text()
    run.nothing_is_left()
    (run.folder / "dead").unlink()
    program = run.start("launch/oni.sh", "judge", LLM_WAIT_SECONDS="2")
    assert program.wait() == 2
    assert "has not answered a question within LLM_WAIT_SECONDS=2" in program.text()
    run.nothing_is_left()
    assert not run.has("arguments")


def test_a_port_that_is_taken_is_told(run: Run) -> None:
    with socket.create_server(("127.0.0.1", run.port)):
        program = run.start("launch/oni.sh", "judge")
        assert program.wait() == 2
    assert program.text().startswith(f"error: PORT={run.port}: somebody listens there")
    assert not run.has("vllm_arguments")


@pytest.mark.parametrize("name", ["no_such_python", "false"])
def test_a_python_that_is_none_is_told(run: Run, name: str) -> None:
    """As itself: nobody is to look for a program at the port, which Python would have asked."""
    program = run.start("launch/oni.sh", "judge", PYTHON=name)
    assert program.wait() == 2
    assert program.text() == f"error: PYTHON={name}: must be a Python; give another: PYTHON=FILE\n"
    assert not run.has("vllm_arguments")


def test_gpus_are_divided_between_server_and_training(run: Run) -> None:
    run.touch("ready")
    program = run.start("launch/oni.sh", "judge", FAKE_CODE="0", GPUS="2", CUDA_VISIBLE_DEVICES="4,5,6")
    assert program.wait() == 0, program.text()
    assert run.lines("vllm_arguments")[0].endswith("--tensor-parallel-size 2|4,5")
    assert run.lines("arguments")[-1] == "CUDA_VISIBLE_DEVICES=6"
    program = run.start(
        "launch/oni.sh", "judge", FAKE_CODE="0", CUDA_VISIBLE_DEVICES="4", LLM_FLAGS="--seed 1"
    )
    assert program.wait() == 0, program.text()
    assert run.lines("vllm_arguments")[1].endswith("--gpu-memory-utilization 0.6 --seed 1|4")


@pytest.mark.parametrize(("code", "again"), [("0", False), ("2", False), ("134", True)])
def test_a_job_of_two_components(run: Run, code: str, again: bool) -> None:
    run.touch("ready")
    program = start_job(run, "--config.seed=3", FAKE_CODE=code)
    assert program.wait() == int(code), program.text()
    run.nothing_is_left()
    given = run.lines("arguments")
    assert f"--config.annotator.openai.base_url=http://127.0.0.1:{run.port}/v1" in given
    assert "--config.annotator.openai.model=Tiny-Judge" in given
    assert "--config.devices.learner=all" in given, "the GPUs of the second component, not of the server's"
    assert given[-2] == "--config.seed=3"
    assert "--het-group=1" in run.lines("srun_flags")
    assert run.has("requeued") == again


def test_a_job_whose_time_ends_before_the_first_answer_is_queued_again(run: Run) -> None:
    program = start_job(run)
    wait_until(lambda: run.has("server_pid"), "the server")
    program.send(signal.SIGUSR1)
    assert program.wait() == 75, program.text()
    run.nothing_is_left()
    assert run.has("requeued")
    assert not run.has("arguments")


def test_a_job_whose_time_ends_is_queued_again(run: Run) -> None:
    run.touch("ready")
    program = start_job(run)
    wait_until(lambda: run.has("arguments"), "the training")
    program.send(signal.SIGUSR1)
    assert program.wait() == 75, program.text()
    run.nothing_is_left()
    assert run.has("saved")
    assert run.lines("requeued") == ["requeue 31"]
