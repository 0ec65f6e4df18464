"""How items of a call for a GPU's figures run: time that is left to others, what one process runs
after another, and logs.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from motif_jax import benchmarks
from tests.conftest import REPOSITORY

# The scripts of launch/ import each other by their names.
sys.path.insert(0, str(REPOSITORY / "launch"))
gpu_benchmarks = importlib.import_module("gpu_benchmarks")
gpu_figures = importlib.import_module("gpu_figures")
gpu_logs = importlib.import_module("gpu_logs")
gpu_plans = importlib.import_module("gpu_plans")
gpu_runner = importlib.import_module("gpu_runner")

# A process that writes lines as launch/gpu_benchmarks.py does, of two items up to one that is
# "silent", and ends as where one is late.
TWO_ITEMS = """
import json, sys
items, figures, deadline = sys.argv[1:]
names = [item["item"] for item in json.loads(items)]
for name in names[:2]:
    if name == "silent":
        break
    with open(figures, "a") as file:
        file.write(json.dumps({"item": name, "items": len(names)}) + "\\n")
sys.exit(99)
"""


def figures_of(folder: Path, seconds: float = 60.0) -> Any:
    return gpu_runner.Figures(folder, folder, time.time(), seconds)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = gpu_logs.json_lines(folder / "figures.jsonl")
    return lines


def item(name: str, script: str = "true", limit: float = 20.0, **values: Any) -> Any:
    reserve = values.pop("reserve", 1.0)
    return gpu_plans.Item(name, ["bash", "-c", script], gpu_logs.nothing, limit, reserve, **values)


def benchmark(name: str, limit: float = 50.0, reserve: float = 1.0) -> Any:
    task = {"item": name, "benchmark": "train_gpu", "options": {}}
    return gpu_plans.Item(name, [], gpu_logs.nothing, limit, reserve, benchmark=task)


def test_a_chain_leaves_time_for_its_later_items(tmp_path: Path) -> None:
    figures_of(tmp_path).run_chain([item("first"), item("second", reserve=55.0)], 0.0)

    first, second = lines_of(tmp_path)
    assert first["error"] == "no time was left for it"
    assert "error" not in second


def test_the_time_in_which_processes_end_is_left_to_them(tmp_path: Path) -> None:
    figures_of(tmp_path, gpu_runner.GRACE_SECONDS + 4.0).run(item("late"), 0.0)

    assert lines_of(tmp_path)[0]["error"] == "no time was left for it"


def test_items_run_in_the_repository_with_their_environment(tmp_path: Path) -> None:
    script = 'pwd; echo "$JAX_COMPILATION_CACHE_DIR $WORD"'
    figures_of(tmp_path).run(item("where", script, environment={"WORD": "own"}), 0.0)

    expected = [str(REPOSITORY), f"{tmp_path / 'compiled'} own"]
    assert (tmp_path / "where.log").read_text().splitlines() == expected


def test_a_training_saves_before_its_limit_ends_it(tmp_path: Path) -> None:
    script = f"trap 'echo saved > {tmp_path}/saved; exit 75' TERM; sleep 50 & wait"
    figures_of(tmp_path).run(item("training", script, 3.0, timed=True), 0.0)

    assert (tmp_path / "saved").exists()
    assert "error" not in lines_of(tmp_path)[0]


def test_an_items_log_is_packed_when_it_has_ended(tmp_path: Path) -> None:
    figures_of(tmp_path).run(item("first"), 0.0)

    with tarfile.open(tmp_path / "logs.tar.gz") as tar:
        assert tar.getnames() == ["first.log"]


def test_logs_that_cannot_be_packed_end_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile, "open", full)

    figures_of(tmp_path).run_chain([item("first"), item("second")], 0.0)

    assert [line["item"] for line in lines_of(tmp_path)] == ["first", "second"]
    assert "the logs cannot be packed" in capsys.readouterr().err


def test_items_behind_a_late_one_go_on_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "gpu_benchmarks.py").write_text(TWO_ITEMS)
    monkeypatch.setattr(gpu_runner, "REPOSITORY", tmp_path)

    figures_of(tmp_path).run_in_one_process(
        [benchmark(name) for name in ("first", "second", "silent", "last")], 0.0
    )

    assert lines_of(tmp_path) == [
        {"item": "first", "items": 4},
        {"item": "second", "items": 4},
        {"item": "silent", "error": "its process ended with 99"},
        {"item": "last", "items": 1},
    ]


def test_benchmarks_that_follow_each_other_share_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[list[str], float]] = []

    def note(self: Any, items: list[Any], reserved: float) -> None:
        calls.append(([item.name for item in items], reserved))

    monkeypatch.setattr(gpu_runner.Figures, "run_chain", note)
    monkeypatch.setattr(gpu_runner.Figures, "run_in_one_process", note)
    items = [item("games"), benchmark("train"), benchmark("learner"), item("nethack", reserve=9.0)]
    plan = gpu_plans.Plan("agents", 100.0, [], items)
    other = gpu_plans.Plan("language", 100.0, [[item("make")]], [item("tests", reserve=4.0)])
    monkeypatch.setattr(gpu_figures, "chosen_plans", lambda _: [plan, other])
    monkeypatch.setattr(gpu_figures.Figures, "end_at_signals", lambda _: None)
    flags = [f"--work={tmp_path}", f"--out={tmp_path}", "--seconds=100"]
    monkeypatch.setattr(sys, "argv", ["gpu_figures.py", *flags])

    gpu_figures.main()

    # The other plan needs 5 seconds, its last item 4 of them.
    assert calls == [
        (["games"], 5.0 + 9.0 + 2.0),
        (["train", "learner"], 5.0 + 9.0),
        (["nethack"], 5.0),
        (["make"], 4.0),
        (["tests"], 0.0),
    ]


def task(name: str, limit: float = 50.0, reserve: float = 1.0) -> dict[str, Any]:
    return {"item": name, "benchmark": "b", "options": {}, "limit": limit, "reserve": reserve}


def run_tasks(folder: Path, *tasks: dict[str, Any], seconds: float = 100.0) -> None:
    gpu_benchmarks.main(list(tasks), str(folder / "figures.jsonl"), time.time() + seconds)


@pytest.mark.parametrize("error", [ValueError("why"), SystemExit("why")])
def test_an_error_of_one_benchmark_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def run(task: dict[str, Any]) -> dict[str, Any]:
        if task["item"] == "broken":
            benchmarks.early_line["value"] = 3.0
            raise error
        if task["item"] == "stopped":
            raise ValueError("before its first figure")
        return {"value": 5.0}

    monkeypatch.setattr(gpu_benchmarks, "run", run)

    run_tasks(tmp_path, task("broken"), task("stopped"), task("good"))

    broken, stopped, good = lines_of(tmp_path)
    assert (broken["value"], "why" in broken["error"]) == (3.0, True)
    # The figure is the other item's.
    assert "value" not in stopped
    assert (good["value"], "error" in good) == (5.0, False)


def test_a_benchmark_leaves_time_for_the_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_benchmarks, "run", lambda _: {})

    run_tasks(tmp_path, task("first"), task("second", reserve=95.0))

    first, second = lines_of(tmp_path)
    assert first["error"] == "no time was left for it"
    assert "error" not in second


def test_a_late_benchmark_ends_its_process_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        ended.set()

    def run(task: dict[str, Any]) -> dict[str, Any]:
        benchmarks.early_line["value"] = 3.0
        assert ended.wait(20)
        return {}

    monkeypatch.setattr(gpu_benchmarks, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(gpu_benchmarks, "run", run)
    monkeypatch.setattr(os, "_exit", leave)

    run_tasks(tmp_path, task("late", limit=0.3))

    assert codes == [gpu_benchmarks.LATE_CODE]
    expected = {"item": "late", "seconds": 0.3, "error": "not done in 0 s", "value": 3.0}
    assert json.loads((tmp_path / "figures.jsonl").read_text().splitlines()[0]) == expected


def test_trainings_by_the_clock_are_not_stretched() -> None:
    plan = gpu_plans.Plan("p", 9.0, [[item("a", limit=2.0)]], [item("b", limit=3.0, timed=True)])

    stretched = plan.stretched(10.0)

    assert [item.limit for item in stretched.items()] == [20.0, 3.0]
