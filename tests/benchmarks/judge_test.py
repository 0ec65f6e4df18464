"""The benchmark of a language model as the judge."""

from __future__ import annotations

import pytest

from motif_jax.benchmarks import judge
from tests import made_up_judge
from tests.reward_fixtures import load_config

SHORT = {
    "options.seconds": 0.01,
    "repeats": 1,
    "options.questions": 5,
    "options.batch": 4,
    "options.shared_tokens": 20,
}


@pytest.mark.slow
def test_both_sides_give_the_same_answers() -> None:
    line = judge.run(load_config("benchmark", "judge", {**SHORT, "options.shape": "tiny"}))
    assert line["unit"] == "questions/s"
    assert line["log_probabilities_apart"] < 1e-4
    assert line["tokens_a_question"] == 2 * 11 + 14
    assert 14 < line["tokens_run_a_question"] < line["tokens_a_question"]
    assert min(line["value"], line["baseline"]["value"]) > 0


@pytest.mark.extra
def test_a_model_in_a_folder_can_be_measured(tmp_path) -> None:
    folder = made_up_judge.write(tmp_path / "judge")
    line = judge.run(
        load_config(
            "benchmark", "judge", {**SHORT, "options.model": str(folder), "options.baseline": False}
        )
    )
    assert line["weight_bytes"] < line["peak_bytes_with_loading"]
