"""The scripts that run a language model's server beside a training, with a pretended vLLM and a pretended training."""

from __future__ import annotations

import contextlib
import os
import signal
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


@pytest.mark.parametrize("number", [signal.SIGUSR1])
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


@pytest.mark.parametrize(("code", "again"), [("134", True)])
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
