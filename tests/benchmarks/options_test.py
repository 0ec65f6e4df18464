"""Options that no benchmark can measure with are told before any work, and its line is JSON that every reader takes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from motif_jax.benchmarks import train
from motif_jax.stages import benchmark
from motif_jax.support.errors import UserError
from tests.reward_fixtures import REPOSITORY, load_config


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("train", "seconds", 0.0),
        ("train", "warmup_seconds", -1.0),
        ("train", "envs_per_worker", 3),
        ("learner", "batch_size", 100),
        ("learner", "dtype", "int8"),
        ("reward", "learning_rate", 0.0),
        ("text_train", "length", 16),
    ],
)
def test_options_that_cannot_be_measured_with_are_refused(name: str, key: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"options\.{key}="):
        benchmark.check(load_config("benchmark", name, {f"options.{key}": value}), None)


def test_a_second_before_the_first_may_be_left_out() -> None:
    benchmark.check(load_config("benchmark", "train", {"options.warmup_seconds": 0.0}), None)


def no_constants(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_a_line_has_null_where_there_is_no_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    same, parts = {"value": 1.5, "name": "Infinity"}, {"link": math.inf, "rates": [2, math.nan]}
    monkeypatch.setattr(train, "run", lambda config: same | {"parts": parts, "sweep": (1.0, -math.inf)})
    benchmark.run(load_config("benchmark", "train"), None)
    line = json.loads(capsys.readouterr().out, parse_constant=no_constants)
    assert line == same | {"parts": {"link": None, "rates": [2, None]}, "sweep": [1.0, None]}


def test_the_published_lines_are_json() -> None:
    for line in (REPOSITORY / "docs" / "benchmarks.jsonl").read_text().splitlines():
        assert json.loads(line, parse_constant=no_constants)["ratio"] > 0
