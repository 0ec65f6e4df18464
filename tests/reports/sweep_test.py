"""Combinations of values that a study trains with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from motif_jax.core.errors import UserError
from motif_jax.reports import run_study, study_config, sweep
from motif_jax.reports.study_config import StudyConfig
from motif_jax.schema import read_section


def config_of(keys: str, draws: int | None = None, **values: object) -> ConfigDict:
    config = study_config.study(
        {"training": "configs/train_agent.py", "methods": {"agent": ""}, **values}
    )()
    config.sweep.over = keys
    config.sweep.draws = draws
    return config


def study_of(keys: str, draws: int | None = None, **values: object) -> StudyConfig:
    return read_section(StudyConfig, config_of(keys, draws, **values))


def flags_of(keys: str, draws: int | None = None, **values: object) -> Mapping[str, str]:
    return sweep.expand(study_of(keys, draws, **values)).methods


def test_a_grid_has_every_combination() -> None:
    methods = flags_of("optimizer.learning_rate=1e-4,1e-3; seed_of=1,2")

    assert methods == {
        "learning_rate=1e-4_seed_of=1": "--config.optimizer.learning_rate=1e-4 --config.seed_of=1",
        "learning_rate=1e-4_seed_of=2": "--config.optimizer.learning_rate=1e-4 --config.seed_of=2",
        "learning_rate=1e-3_seed_of=1": "--config.optimizer.learning_rate=1e-3 --config.seed_of=1",
        "learning_rate=1e-3_seed_of=2": "--config.optimizer.learning_rate=1e-3 --config.seed_of=2",
    }


def test_values_with_brackets_and_paths_are_whole() -> None:
    """Two dots lead to the folder above, and a comma in brackets belongs to a value; names are
    those of folders.
    """
    assert flags_of("dataset_dir=../a,../b") == {
        "dataset_dir=.._a": "--config.dataset_dir=../a",
        "dataset_dir=.._b": "--config.dataset_dir=../b",
    }
    assert flags_of("network.flat_sizes=(64,),(128,64)") == {
        "flat_sizes=_64_": "--config.network.flat_sizes=(64,)",
        "flat_sizes=_128_64_": "--config.network.flat_sizes=(128,64)",
    }
    with pytest.raises(UserError, match="names differ in more than signs"):
        flags_of("dataset_dir=a/b,a:b")


def test_every_method_has_the_combinations_in_its_tables_and_games() -> None:
    config = study_of(
        "a.size=1,2",
        methods={"task": "--config.x=0", "both": ""},
        games={"both": "--config.greedy=True"},
        tables={"all": "task,both", "one": "both"},
    )

    expanded = sweep.expand(config)

    assert expanded.methods["task_size=2"] == "--config.x=0 --config.a.size=2"
    assert expanded.tables == {
        "all": "task_size=1,task_size=2,both_size=1,both_size=2",
        "one": "both_size=1,both_size=2",
    }
    assert expanded.games == {
        "both_size=1": "--config.greedy=True",
        "both_size=2": "--config.greedy=True",
    }


def test_keys_that_end_alike_are_written_whole() -> None:
    assert list(flags_of("actors.size=1; network.size=2")) == ["actors.size=1_network.size=2"]


def test_a_study_without_a_sweep_is_as_it_was() -> None:
    config = study_of("")
    assert sweep.expand(config) == config


def test_draws_lie_in_their_ranges() -> None:
    values_of_key = sweep.parse(
        "lr=log 1e-5..1e-1; discount=0.9..1; workers=1..3; width=log 16..256"
    )

    drawn = sweep.combinations(values_of_key, 200, seed=0)

    rates = [float(combination["lr"]) for combination in drawn]
    assert min(rates) >= 1e-5
    assert max(rates) <= 1e-1
    # Half of them lie below the middle of the logarithms; of uniform ones 1 in 100 would.
    assert 60 < sum(rate < 1e-3 for rate in rates) < 140
    discounts = [float(combination["discount"]) for combination in drawn]
    assert 0.9 <= min(discounts) < 0.91
    assert 0.99 < max(discounts) <= 1
    assert {combination["workers"] for combination in drawn} == {"1", "2", "3"}
    widths = [int(combination["width"]) for combination in drawn]
    assert 16 <= min(widths) < max(widths) <= 256
    assert math.isclose(sum(width < 64 for width in widths), 100, abs_tol=40)


def test_rounding_leaves_no_range() -> None:
    values_of_key = sweep.parse("gamma=0.9..0.9999; lr=log 1.0006e-4..1e-3")

    drawn = sweep.combinations(values_of_key, 300, seed=0)

    assert max(float(combination["gamma"]) for combination in drawn) <= 0.9999
    assert min(float(combination["lr"]) for combination in drawn) >= 1.0006e-4


def test_more_draws_begin_with_the_same_ones() -> None:
    values_of_key = sweep.parse("lr=log 1e-5..1e-2; size=8,16,32")

    few = sweep.combinations(values_of_key, 3, seed=5)
    more = sweep.combinations(values_of_key, 6, seed=5)
    other = sweep.combinations(values_of_key, 3, seed=6)

    assert more[:3] == few
    assert other != few


def test_drawn_combinations_differ() -> None:
    drawn = sweep.combinations(sweep.parse("a=1,2; b=1,2"), 4, seed=0)
    assert len({tuple(combination.items()) for combination in drawn}) == 4


@pytest.mark.parametrize(
    ("keys", "draws", "message"),
    [
        ("lr", None, "must be 'key=value,value"),
        ("lr=", None, "must be 'key=value,value"),
        ("lr=,", None, "must be 'key=value,value"),
        ("lr=1; lr=2", None, "a key once"),
        ("lr=1,1", None, "different values"),
        ("lr=a b,c", None, "without blanks"),
        ("lr=1e-3..1e-5", 2, "from a lower to a higher number"),
        ("lr=log 0..1", 2, "above 0"),
        ("lr=low..high", 2, "must be 'key=value,value"),
        ("lr=1..2", None, r"^config\.sweep\.draws: must be given, as lr"),
        ("lr=1,2", 3, r"^config\.sweep\.draws=3: .*, 2 are"),
        ("", 3, r"^config\.sweep\.draws=3: must be None"),
    ],
)
def test_a_sweep_that_cannot_be_read_is_refused(keys: str, draws: int | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sweep.expand(study_of(keys, draws))


def test_a_study_plans_a_run_for_each_combination_and_seed(tmp_path: Path) -> None:
    sweep_of_rates = "optimizer.learning_rate=1e-4,1e-3"
    run_study.check(config_of(sweep_of_rates, seeds=2), tmp_path)

    planned = run_study.runs(sweep.expand(study_of(sweep_of_rates, seeds=2)), tmp_path)

    assert [run.games.parent.name for run in planned] == [
        "learning_rate=1e-4-1",
        "learning_rate=1e-3-1",
        "learning_rate=1e-4-2",
        "learning_rate=1e-3-2",
    ]
    assert "--config.optimizer.learning_rate=1e-4" in planned[0].identity["flags"]
