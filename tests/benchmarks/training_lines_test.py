"""The JSON lines of the benchmarks of a training, with a clock of the test and stand-ins for the
parts that are measured.
"""

from __future__ import annotations

import json

import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, learning
from motif_jax.rl.actors.rollouts import ActorsConfig
from tests.benchmarks.lines import line_of
from tests.benchmarks.stand_ins import StandInStream, StandInSystem, Training, inference_metrics

HERE = "motif_jax.benchmarks"
DOOR_KEY = "MiniGrid-DoorKey-8x8-v0"
# Three workers with two groups of five environments each.
ACTORS = ActorsConfig(env="", options={}, seed=0, workers=3, envs_per_group=5, rollout=1)

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def systems(monkeypatch: pytest.MonkeyPatch) -> list[StandInSystem]:
    """The systems that a benchmark has made, in order."""
    systems: list[StandInSystem] = []

    def make_system(config: Training) -> StandInSystem:
        systems.append(StandInSystem(config))
        return systems[-1]

    def training_config(options: ConfigDict, seed: int, variant: str = "") -> Training:
        return Training(options.to_dict(), seed, variant)

    monkeypatch.setattr(_agents, "training_config", training_config)
    for name in ("train", "learner", "learning", "inference"):
        monkeypatch.setattr(f"{HERE}.{name}.System", make_system)
    for name in ("train", "learner", "learning"):
        monkeypatch.setattr(f"{HERE}.{name}.BatchStream", StandInStream)
    monkeypatch.setattr(
        "motif_jax.rl.settings.actors_configs", lambda config, count: [ACTORS] * count
    )
    monkeypatch.setattr(
        f"{HERE}.inference.call_of", lambda system, rows: lambda: system.calls.append(rows)
    )
    monkeypatch.setattr(f"{HERE}.train.system_metrics", inference_metrics)
    return systems


def test_the_learners_line_counts_the_flops_of_all_rows(systems: list[StandInSystem]) -> None:
    line = line_of("learner", batch_size=66, rollout=33)

    # Two rollouts of 33 steps and a last row, each row of 35 operations.
    assert line["model_flops_per_update"] == 2 * 34 * 35
    assert line["value"] == pytest.approx(line["updates_per_second"] * 2 * 34 * 35)
    assert line["steps_per_second"] == pytest.approx(line["updates_per_second"] * 66)
    assert line["batch_bytes"] == 180


def test_the_learner_is_waited_for_after_every_update(systems: list[StandInSystem]) -> None:
    line_of("learner", batch_size=66, rollout=33)

    (system,) = systems
    assert system.calls.count(60) == system.calls.count("finished") > 3


def test_inferences_line_is_of_the_largest_of_all_batches(systems: list[StandInSystem]) -> None:
    line = line_of("inference")

    assert list(line["rows_per_second"]) == ["5", "10", "20", "30"]
    assert line["rows"] == 30
    # Each row of ten operations.
    assert line["value"] == pytest.approx(line["rows_per_second"]["30"] * 10)


def test_inference_closes_its_system(systems: list[StandInSystem]) -> None:
    line_of("inference")

    (system,) = systems
    assert system.calls[-1] == "closed"


def test_the_trainings_baseline_takes_turns_on_the_device(systems: list[StandInSystem]) -> None:
    line = line_of("train", seconds=9.0)

    learner = line["learner_steps_per_second"]
    inference = line["inference_rows_per_second"]
    assert line["baseline"]["value"] == pytest.approx(1 / (1 / learner + 1 / inference))
    assert "beside" not in line
    assert len(systems) == 1


@pytest.mark.usefixtures("systems")
def test_a_trainings_rate_is_printed_before_its_baseline_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def killed(dtype: str) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(_agents, "matrix_product_rate", killed)
    with pytest.raises(KeyboardInterrupt):
        line_of("train", seconds=9.0)

    (early,) = [
        json.loads(line) for line in capsys.readouterr().err.splitlines() if "benchmark" in line
    ]
    assert early["value"] > 0
    assert early["settings"]["seconds"] == 9.0


@pytest.mark.usefixtures("systems")
def test_metrics_of_a_training_are_means_and_extremes() -> None:
    metrics = line_of("train", seconds=9.0)["metrics"]

    # The three grow together.
    assert metrics["ratio_min"] < metrics["loss/total"] < metrics["lag/max"]


def test_a_training_beside_another_is_measured_in_turns(systems: list[StandInSystem]) -> None:
    line = line_of("train", beside="quickstart", seconds=9.0)

    networks = [system.config.options["network"] for system in systems[1:]]
    assert networks == ["", "quickstart"] * 3
    assert line["beside"]["what"] == "the network of quickstart"
    assert line["in_turns"] == pytest.approx(
        line["beside"]["value"] * line["beside"]["ratio"], rel=0.1
    )


def test_learning_is_measured_with_and_without_processes(systems: list[StandInSystem]) -> None:
    line_of("learning")

    trainings = [(system.config.seed, system.config.serial) for system in systems]
    assert trainings == [(7, False), (7, True), (8, False), (8, True), (9, False), (9, True)]
    assert {system.config.variant for system in systems} == {"recall"}


def test_learnings_line_counts_the_steps_up_to_the_goal(systems: list[StandInSystem]) -> None:
    line = line_of("learning")

    steps = sum(call for call in systems[0].calls if isinstance(call, int))
    assert line["unit"] == "s"
    assert line["steps"] == line["serial_steps"] == steps


def door_key_options(monkeypatch: pytest.MonkeyPatch, **goal: float) -> ConfigDict:
    """Options of a training of DoorKey, three of four of whose episodes succeed; its goal has other
    numbers.
    """
    options = learning.options()
    options.env = DOOR_KEY
    monkeypatch.setitem(learning.GOALS, DOOR_KEY, learning.GOALS[DOOR_KEY]._replace(**goal))
    return options


@pytest.mark.usefixtures("systems")
def test_a_goal_that_is_missed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    options = door_key_options(monkeypatch, steps=121)

    message = (
        r"^after 121 steps: {.*'episode/success': 0.75, .*}, not episode/success of at least 0.8$"
    )
    with pytest.raises(RuntimeError, match=message):
        learning.learn(options, 3, True)


@pytest.mark.usefixtures("systems")
def test_learning_ends_at_the_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    options = door_key_options(monkeypatch, level=0.75)

    seconds, steps = learning.learn(options, 3, True)

    # The means are over enough episodes after the second batch.
    assert steps == 60 + 61
    assert seconds > 0


def test_learning_takes_the_reward_of_its_goal(
    systems: list[StandInSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = door_key_options(monkeypatch, level=0.75)

    learning.learn(options, 3, True)

    (system,) = systems
    assert system.config.options["reward_dir"].endswith(learning.GOALS[DOOR_KEY].reward)
