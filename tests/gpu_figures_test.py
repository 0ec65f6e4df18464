"""The script that takes a GPU's figures runs its items and reads logs and runs as they are."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motif_jax import schema
from motif_jax.benchmarks import _command as benchmark_stage
from motif_jax.core import resources
from motif_jax.core.devices import compiled_programs
from tests.command_configs import config_of
from tests.conftest import REPOSITORY

# The scripts of launch/ import each other by their names.
sys.path.insert(0, str(REPOSITORY / "launch"))
gpu_items = importlib.import_module("gpu_items")
gpu_plans = importlib.import_module("gpu_plans")
gpu_logs = importlib.import_module("gpu_logs")
gpu_runner = importlib.import_module("gpu_runner")


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], bool]) -> None:
    """A busy machine takes a moment to start and to end processes."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ended(log: str, **values: Any) -> Any:
    return gpu_logs.Ended(**{"log": log, "began": 100.0, "late": False, "code": 0, **values})


def test_a_benchmark_that_was_late_still_tells_its_first_step() -> None:
    log = "compiling\nfirst step after 34.5 s\n"
    assert gpu_logs.benchmark_line(ended(log, late=True)) == {"first_step_seconds": 34.5}
    assert gpu_logs.benchmark_line(ended(log + '{"benchmark": "score", "value": 2}\n')) == {
        "benchmark": "score",
        "value": 2,
    }


def test_a_warm_start_says_how_many_programs_came_from_disk() -> None:
    line = '{"benchmark": "score", "value": 2}\n'
    reused = "compiled programs that came from /var/compiled: 7, 41 s of compilation saved\n"
    assert gpu_logs.warm_line(ended(line + reused)) == {
        "benchmark": "score",
        "value": 2,
        "reused_programs": 7,
    }
    assert gpu_logs.warm_line(ended(line))["reused_programs"] is None


def test_the_line_of_reused_programs_is_read() -> None:
    programs = compiled_programs.ReusedPrograms()
    programs.programs = 3
    programs.saved_seconds = 20.0
    assert gpu_logs.warm_line(ended(f"before\n{programs.line()}\n"))["reused_programs"] == 3


def test_a_phase_begins_where_it_first_does() -> None:
    """A benchmark compiles more than one program."""
    log = "phase trace begins after 3.1 s\nphase compile begins after 5.0 s\n"
    again = "phase trace begins after 40.0 s\nfirst step after 30.0 s\n"
    assert gpu_logs.cold_line(ended(log + again)) == {
        "first_step_seconds": 30.0,
        "phases": {"trace": 3.1, "compile": 5.0},
    }


def test_rates_that_were_measured_stay_where_an_item_is_late(tmp_path: Path) -> None:
    printed = '{"benchmark": "text_train", "value": 3}'
    figures = gpu_runner.Figures(tmp_path, tmp_path, time.time(), 60.0)
    command = ["bash", "-c", f"echo '{printed}' >&2; sleep 50"]
    figures.run(gpu_plans.Item("text_train", command, gpu_logs.benchmark_line, 2.0, 1.0), 0.0)
    (line,) = gpu_logs.json_lines(tmp_path / "figures.jsonl")
    assert (line["value"], line["error"]) == (3, "not done in 2 s")


@pytest.mark.parametrize(
    "log",
    [
        "tests/a_test.py::test_one PASSED    [ 33%]\ntests/a_test.py::test_two[x y] FAILED   [ 66%]\n",
        "[gw0] [ 33%] PASSED tests/a_test.py::test_one \n[gw1] [ 66%] FAILED tests/a_test.py::test_two[x y] \n",
    ],
)
def test_outcomes_of_tests_are_counted_with_and_without_processes(log: str) -> None:
    line = gpu_logs.tests_line(ended(log + "tests/a_test.py::test_three "))
    assert line["tests"] == {"passed": 1, "failed": 1, "error": 0, "skipped": 0}
    assert line["failed"] == ["tests/a_test.py::test_two[x y]"]


def test_a_training_is_judged_by_its_last_third(tmp_path: Path) -> None:
    earlier_run = [{"time": 20.0, "step": 0}, {"time": 30.0, "step": 5}]
    rows = earlier_run + [
        {"time": 100.0 + t, "step": 1000 * min(t, 60) + 100 * max(0, t - 60)}
        for t in range(10, 91, 10)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    games = [{"step": 100, "length": 10, "turns": 5}, {"step": 62_000, "length": 10, "turns": 30}]
    (tmp_path / "episodes.jsonl").write_text(
        "".join(json.dumps(game) + "\n" for game in games) + '{"step"'
    )
    line = gpu_logs.training_reader(tmp_path)(ended(""))
    assert line["first_row_seconds"] == 10.0
    assert line["first_steps_per_second"] == 1000.0
    assert line["settled_steps_per_second"] == 100.0
    assert line["turns_per_step"] == 3.0
    assert line["settled_turns_per_second"] == 300.0


def test_an_item_beyond_its_limit_ends_with_its_children_alone(tmp_path: Path) -> None:
    figures = gpu_runner.Figures(tmp_path, tmp_path, time.time(), 60.0)
    sleeping = ["bash", "-c", "echo begun; sleep 50 & echo $! > child; wait"]
    items = [
        gpu_plans.Item(
            "late", ["bash", "-c", f"cd {tmp_path}; {sleeping[2]}"], gpu_logs.nothing, 2.0, 1.0
        ),
        gpu_plans.Item("good", ["true"], gpu_logs.nothing, 20.0, 1.0),
        gpu_plans.Item("broken", ["bash", "-c", "echo why; exit 3"], gpu_logs.nothing, 20.0, 1.0),
    ]
    figures.run_together([[item] for item in items], 0.0)
    lines = {line["item"]: line for line in gpu_logs.json_lines(tmp_path / "figures.jsonl")}
    assert lines["late"]["error"] == "not done in 2 s"
    assert "error" not in lines["good"]
    assert lines["broken"]["error"] == "ended with 3: why"
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_alive(child))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_ended_call_leaves_logs_and_no_process(tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "nethack"
    run.mkdir()
    (run / "metrics.jsonl").write_text("{}\n")
    script = f"""
import signal, sys
# Whoever runs the tests in the background may have it ignored.
signal.signal({int(number)}, signal.SIG_DFL)
sys.path.insert(0, {str(REPOSITORY / "launch")!r})
from pathlib import Path
from gpu_runner import Figures, Item
from gpu_logs import nothing
figures = Figures(Path({str(tmp_path)!r}), Path({str(tmp_path)!r}), {time.time()}, 60.0)
figures.end_at_signals()
command = ["bash", "-c", "cd {tmp_path}; sleep 50 & echo $! > child.new; mv child.new child; wait"]
figures.run_together([[Item("long", command, nothing, 50.0, 1.0)]], 0.0)
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    wait_until((tmp_path / "child").exists)
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_alive(child))
    assert gpu_logs.json_lines(tmp_path / "figures.jsonl") == [
        {"item": "all", "error": "ended from outside"}
    ]
    with tarfile.open(tmp_path / "logs.tar.gz") as tar:
        assert tar.getnames() == ["long.log", "nethack/metrics.jsonl"]


def test_an_item_leaves_time_for_the_later_ones(tmp_path: Path) -> None:
    figures = gpu_runner.Figures(tmp_path, tmp_path, time.time(), 60.0)
    figures.run(gpu_plans.Item("first", ["true"], gpu_logs.nothing, 20.0, 5.0), reserved=55.0)
    assert gpu_logs.json_lines(tmp_path / "figures.jsonl")[0]["error"] == "no time was left for it"


def plans(work: Path = Path("work"), **options: Any) -> list[Any]:
    """The plans of the machine that is lent: 16 cores."""
    made: list[Any] = gpu_items.PlanMaker(work, 16, **options).plans()
    return made


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: plan.name)
def test_what_a_plans_items_need_fits_into_its_seconds(plan: Any) -> None:
    assert plan.needed_seconds() + gpu_runner.GRACE_SECONDS <= plan.seconds <= 440
    for item in plan.items():
        assert item.reserve <= item.limit, item.name


def test_a_training_without_metrics_is_an_error(tmp_path: Path) -> None:
    figures = gpu_runner.Figures(tmp_path, tmp_path, time.time(), 60.0)
    reader = gpu_logs.training_reader(tmp_path / "run")
    figures.run(gpu_plans.Item("glam", ["sleep", "50"], reader, 1.0, 1.0, timed=True), 0.0)
    (line,) = gpu_logs.json_lines(tmp_path / "figures.jsonl")
    assert "the training wrote no metrics" in line["error"]


def test_a_model_that_is_there_is_not_made() -> None:
    (_, language) = plans(model="runs/model")
    items = {item.name: item for item in language.items()}
    assert "make_model" not in items
    assert "--config.network.model=runs/model" in items["glam"].command


def test_a_reward_that_is_there_is_not_made() -> None:
    agents, _ = plans(reward="runs/reward")
    items = {item.name: item for item in agents.items()}
    assert "make_reward" not in items
    assert "--config.reward.dir=runs/reward" in items["nethack"].command
    assert items["train_reward"].benchmark["options"]["reward_dir"] == "runs/reward"


def stage_commands(item: Any) -> list[list[str]]:
    """The commands of an item that start a stage: one, or those that a shell runs one after the
    other.
    """
    command = item.command
    if command[:2] == ["bash", "-c"]:
        words = shlex.split(command[2])
        ends = [-1, *(index for index, word in enumerate(words) if word == "&&"), len(words)]
        return [words[start + 1 : stop] for start, stop in itertools.pairwise(ends)]
    return [command] if "motif_jax.launch" in command else []


ITEMS = [
    pytest.param(item, id=f"{item.name}{'-tiny' if tiny else ''}")
    for tiny in (False, True)
    for plan in plans(tiny=tiny)
    for item in plan.items()
]


@pytest.mark.parametrize("item", ITEMS)
def test_every_command_of_a_plan_has_a_valid_config(item: Any) -> None:
    commands = stage_commands(item)
    assert commands or item.benchmark or item.name == "numeric_tests"
    for _, _, module, config_flag, *flags in commands:
        assert module == "motif_jax.launch"
        name = config_flag.removeprefix("--config=configs/")
        config = config_of(name, *(flag for flag in flags if not flag.startswith("--workdir=")))
        schema.validate(config)
        if config.stage == "benchmark":
            benchmark_stage.check(config, None)


@pytest.mark.parametrize("item", [item for item in ITEMS if item.values[0].benchmark])
def test_benchmarks_of_agents_have_options_that_can_be_measured(item: Any) -> None:
    task = item.benchmark
    config = resources.config("benchmark", task["benchmark"])
    assert set(task["options"]) <= set(config.options.keys())
    config.options.update(task["options"])
    benchmark_stage.check(config, None)


@pytest.mark.parametrize("has_plugins", [True, False])
def test_tests_get_the_flags_of_plugins_that_are_there(
    monkeypatch: pytest.MonkeyPatch, has_plugins: bool
) -> None:
    spec = object() if has_plugins else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    (_, language) = plans()
    (tests,) = [item for item in language.items() if item.name == "numeric_tests"]
    for flag in ("--timeout=100", "-n"):
        assert (flag in tests.command) == has_plugins
    assert tests.command[-1] == "--all"


def test_programs_of_the_tests_make_no_cold_start_warm() -> None:
    (_, language) = plans()
    items = {item.name: item for item in language.items()}
    folder = items["numeric_tests"].environment["JAX_COMPILATION_CACHE_DIR"]
    assert folder != str(Path("work") / "compiled")


def test_the_whole_step_alone_is_run() -> None:
    (_, language) = plans()
    items = {item.name: item for item in language.items()}
    assert "--config.options.step=run" in items["text_train_step"].command
    assert "--config.options.step=skip" in items["text_train"].command


def test_language_programs_start_one_after_the_other_on_request() -> None:
    chains = [len(chain) for chain in plans(apart=True)[1].together]
    assert chains == [1, len(gpu_items.LANGUAGE_PROGRAMS)]
    assert [len(chain) for chain in plans()[1].together] == [1] * 5


def test_a_call_under_nohup_outlives_its_terminal() -> None:
    script = f"""
import signal, sys
sys.path.insert(0, {str(REPOSITORY / "launch")!r})
from pathlib import Path
from gpu_runner import Figures
signal.signal(signal.SIGHUP, signal.SIG_IGN)
Figures(Path(), Path(), 0.0, 0.0).end_at_signals()
assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
"""
    subprocess.run([sys.executable, "-c", script], check=True)
