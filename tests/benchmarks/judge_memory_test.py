"""The benchmark of the judge's memory, each side in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from motif_jax.benchmarks import _command as benchmark
from motif_jax.benchmarks import judge_memory
from motif_jax.core.errors import UserError
from tests import made_up_judge
from tests.reward_fixtures import load_config

SHORT = {
    "repeats": 1,
    "options.questions": 5,
    "options.batch": 4,
    "options.shared_tokens": 20,
}


@pytest.mark.slow
def test_a_process_of_its_own_is_measured(tmp_path) -> None:
    folder = made_up_judge.write(tmp_path / "judge")
    options = {**SHORT, "options.model": str(folder), "options.torch": False}
    line = judge_memory.run(load_config("benchmark", "judge_memory", options))
    assert line["unit"] == "GB"
    # Of python with jax, and not of the tests' process, which has more.
    assert 0.1 < line["value"] < 0.5
    assert line["value"] <= line["peak_with_start"]
    assert line["baseline"]["value"] is None


def test_the_error_of_a_process_is_shown(tmp_path) -> None:
    (tmp_path / "questions.json").write_text('{"model": "absent.gguf", "dtype": "float32"}')
    with pytest.raises(UserError, match=r"(?s)process of jax's side failed.*absent\.gguf"):
        judge_memory.memory_of_process("jax", tmp_path)


def test_torchs_side_does_without_jax() -> None:
    program = (
        "import sys, motif_jax.benchmarks._torch_judge, motif_jax.benchmarks._judge_alone; "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_model_must_be_named() -> None:
    with pytest.raises(UserError, match=r"options\.model"):
        benchmark.check(load_config("benchmark", "judge_memory", {}), None)


def test_messages_have_a_beginning_and_more_here_too() -> None:
    options = {"options.model": "judge", "options.message_tokens": 3, "options.torch": False}
    with pytest.raises(UserError, match=r"options\.message_tokens=3"):
        benchmark.check(load_config("benchmark", "judge_memory", options), None)
