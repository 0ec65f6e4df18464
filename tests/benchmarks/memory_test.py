"""The benchmarks of memory, each side in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from motif_jax.benchmarks import _command as benchmark
from motif_jax.benchmarks import judge_memory, score_memory
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


@pytest.mark.slow
def test_scores_are_measured_in_a_process_of_their_own() -> None:
    options = {"repeats": 1, "options.model": "tiny_t5", "options.torch": False}
    line = score_memory.run(load_config("benchmark", "score_memory", options))
    assert 0.1 < line["value"] < 0.5
    assert line["value"] <= line["peak_with_start"]


def test_the_error_of_a_process_is_shown() -> None:
    options = {**SHORT, "options.model": "absent.gguf", "options.torch": False}
    with pytest.raises(UserError, match=r"(?s)process of side judge failed.*absent\.gguf"):
        judge_memory.run(load_config("benchmark", "judge_memory", options))


def test_the_other_sides_do_without_jax() -> None:
    names = ("_torch_judge", "_transformers_score", "_alone")
    modules = ", ".join(f"motif_jax.benchmarks.{name}" for name in names)
    program = f"import sys, {modules}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_model_must_be_named() -> None:
    with pytest.raises(UserError, match=r"options\.model"):
        benchmark.check(load_config("benchmark", "judge_memory", {}), None)


def test_messages_have_a_beginning_and_more_here_too() -> None:
    options = {"options.model": "judge", "options.message_tokens": 3, "options.torch": False}
    with pytest.raises(UserError, match=r"options\.message_tokens=3"):
        benchmark.check(load_config("benchmark", "judge_memory", options), None)
