"""Seeds, configs, run folders, progress, metrics and interruption."""

from __future__ import annotations

import io
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict
from tensorboardX.proto import event_pb2

from motif_jax.core import config as checks
from motif_jax.core import interruption, run_folder, seeds
from motif_jax.core.errors import UserError
from motif_jax.core.metrics import MetricsWriter, read_metrics
from motif_jax.core.profiling import Profiler
from motif_jax.core.progress import Progress, format_number, format_seconds


def test_derived_seeds_are_stable_and_separate() -> None:
    assert seeds.derive(777, "env", 3) == 5787547274941599065
    many = {seeds.derive(1, "env", i, j) for i in range(50) for j in range(50)}
    assert len(many) == 2500
    assert all(0 <= seed < 2**63 for seed in many)
    assert len({seeds.derive(1, *path) for path in (("a", 1), ("a", "1"), ("a1",))}) == 3
    assert seeds.rng(1, "a").integers(1000) == seeds.rng(1, "a").integers(1000)


def test_an_error_for_a_user_is_one_line() -> None:
    assert str(UserError("a: \n  b\tc\r\nd\n")) == "a: b c d"


def test_a_number_is_finite_if_a_float_can_hold_it() -> None:
    assert all(map(checks.is_finite, (0, -1.5, 10**308)))
    assert not any(map(checks.is_finite, (10**400, -(10**400), float("nan"), float("inf"), True, "1", None)))


def test_a_refused_value_is_named_with_its_allowed_values(tmp_path: Path) -> None:
    config = {"a": {"b": 0, "c": "x"}, "folder": None, "file": __file__, "here": str(tmp_path)}
    others = {key: config[key] for key in ("folder", "file", "here")}
    assert checks.flat(config) == {"a.b": 0, "a.c": "x", **others}
    assert [checks.has(config, key) for key in ("a.b", "a.d", "folder.b", "a")] == [True, False, False, True]
    assert checks.listed(" a, b,,c ,") == ["a", "b", "c"]
    checks.choice(config, "a.c", "xy")
    checks.positive(config, "a.b", allow_zero=True)
    checks.positive({"n": 0.1}, "n")
    assert checks.existing_folder(config, "here") == tmp_path
    refused: dict[str, tuple[Any, ...]] = {
        "a.c='x': must be one of y, 3": (checks.choice, config, "a.c", iter(["y", 3])),
        "a.b=0: must be a number above 0": (checks.positive, config, "a.b"),
        "n=-1: must be a number of at least 0": (checks.positive, {"n": -1}, "n", True),
        "folder=None: must be a folder: give it with --config.folder=DIR": (
            checks.existing_folder,
            config,
            "folder",
        ),
        f"file='{__file__}': must be an existing folder": (checks.existing_folder, config, "file"),
    }
    for line, (call, *arguments) in refused.items():
        with pytest.raises(UserError) as error:
            call(*arguments)
        assert str(error.value) == f"config.{line}"
    assert str(checks.unknown_variant("c", "ab")) == "variant 'c' is not one of 'a', 'b'"
    naturals = ("0", "12", "9" * 18, "9" * 19, "", "-1", "1.0", "²", "1\n")
    assert list(map(checks.is_natural, naturals)) == [True] * 3 + [False] * 6


def test_a_worker_for_each_core_but_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, workers in ((1, 1), (2, 1), (5, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        assert (checks.available_cores(), checks.default_workers()) == (cores, workers)


def test_a_run_folder_refuses_another_config_and_names_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = ConfigDict({"seed": 1, "model": {"size": 3, "layers": (1, 2)}, "workers": 4})
    run_folder.prepare(run, config, identity=["seed", "model"])
    config.workers = 8
    run_folder.prepare(run, config, identity=["seed", "model"])
    assert run_folder.read_config(run)["workers"] == 8
    config.model.size = 5
    with pytest.raises(UserError, match=r"\(model\.size: 3 before, 5 now\)"):
        run_folder.prepare(run, config, identity=["seed", "model"])
    run_folder.prepare(run, config, identity=["seed", "model"], free=["model.size"])
    versions = json.loads((run / "versions.json").read_text())
    assert set(versions) == {"versions", "git_revision", "command", "directory", "platform", "started"}
    known = versions["versions"]
    assert (known["python"], known["numpy"]) == (platform.python_version(), np.__version__)
    assert versions["command"] == shlex.join(sys.argv)
    assert versions["directory"] == os.getcwd()
    with pytest.raises(UserError, match=rf"^{tmp_path} is not a run folder: it has no config\.json$"):
        run_folder.read_config(tmp_path)
    (run / "config.json").write_text('{"stage": "other"}')
    line = f"^--workdir={run} holds a run of other, this is None: choose another --workdir$"
    with pytest.raises(UserError, match=line):
        run_folder.check_identity(run, config)
    with pytest.raises(UserError, match=r"--workdir=.*config\.json/below cannot be made: "):
        run_folder.prepare(run / "config.json" / "below", config)


def test_differences_of_configs_are_named_with_both_values() -> None:
    old = {
        "a": {"b": 1, "c": 2},
        "ab": 1,
        "options": '{"x": 1, "y": 2}',
        "text": "word " * 90 + "1",
        "gone": None,
    }
    new = {
        "a": {"b": 2, "c": 3},
        "ab": 2,
        "options": {"x": 3, "y": 2},
        "text": "word " * 90 + "2",
        "new": [1],
    }
    lines = run_folder.differences(old, new, ["a", "options", "text", "gone", "new"], ["a.c"])
    assert lines == [
        "a.b: 1 before, 2 now",
        "gone: None before, absent now",
        "new: absent before, [1] now",
        "options.x: 1 before, 3 now",
        "text differs",
    ]
    for before, now, line in (("{", "[1]", "{ before, [1] now"), (None, "{}", "None before, absent now")):
        lines = run_folder.differences({"options": before}, {"options": now}, ["options"])
        assert lines == [f"options: {line}"]


def test_the_revision_is_that_of_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def git(command: list[str], cwd: Path, **_: object) -> SimpleNamespace:
        if asked:
            raise subprocess.TimeoutExpired(command, 20)
        asked.append(cwd)
        return SimpleNamespace(stdout="1f+changes\n")

    monkeypatch.setattr(subprocess, "run", git)
    monkeypatch.setattr(run_folder.resources, "ROOT", tmp_path)
    assert run_folder.git_revision() == "unknown"
    (tmp_path / ".git").mkdir()
    assert [run_folder.git_revision() for _ in range(2)] == ["1f+changes", "unknown"]
    assert asked == [tmp_path]


def test_a_second_process_in_one_folder_is_refused(tmp_path: Path) -> None:
    first, second = (ConfigDict({"stage": "toy", "seed": seed}) for seed in (1, 2))
    refused = pytest.raises(UserError, match=f"{tmp_path} is in use by process {os.getpid()}")
    with run_folder.opened(tmp_path, first), refused, run_folder.opened(tmp_path, second):
        pass
    assert run_folder.read_config(tmp_path)["seed"] == 1
    with run_folder.opened(tmp_path, second):
        assert run_folder.read_config(tmp_path)["seed"] == 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("motif_jax.core.progress.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_progress_says_count_rate_and_time_left(clock: SimpleNamespace) -> None:
    stream = io.StringIO()
    with Progress(2000, "pairs", "annotate", initial=5, stream=stream) as progress:
        # Until the first are done programs are compiled.
        for seconds, done, fields in (
            (3, 5, {}),
            (9, 5, {}),
            (12, 45, {"loss": 0.123456}),
            (5, 65, {}),
            (5, 89, {"a_b": 1234}),
            (10, 139, {}),
            (10, 199, {}),
            (20, 319, {"last": "\x1b]0;owned\x07"}),
        ):
            clock.now += seconds
            progress.update(done, **fields)
        progress.log("a note\nof \x1b[2J")
        clock.now += 1
        progress.update(2004)  # the last batch may go beyond
    assert stream.getvalue().splitlines() == [
        "annotate  5 / 2,000 pairs  0 %",
        "annotate  45 / 2,000 pairs  2 %  loss 0.123",
        "annotate  89 / 2,000 pairs  4 %  4.4 pairs/s  7 min 14 s left  loss 0.123  a b 1,234",
        "annotate  139 / 2,000 pairs  7 %  4.7 pairs/s  6 min 36 s left  loss 0.123  a b 1,234",
        "annotate  199 / 2,000 pairs  10 %  5.13 pairs/s  5 min 51 s left  loss 0.123  a b 1,234",
        r"annotate  319 / 2,000 pairs  16 %  5.75 pairs/s  4 min 52 s left  loss 0.123  a b 1,234  last \x1b]0;owned\x07",
        "a note",
        r"of \x1b[2J",
        r"annotate  2,004 / 2,000 pairs  100 %  60.2 pairs/s  took 1 min 15 s  loss 0.123  a b 1,234  last \x1b]0;owned\x07",
    ]


def test_the_last_line_is_printed_once(clock: SimpleNamespace) -> None:
    stream = io.StringIO()
    with Progress(100, "pairs", "annotate", stream=stream) as progress:
        clock.now += 20
        progress.update(100, loss=0.5)
        clock.now += 1
    with Progress(0, "pairs", "none", stream=stream):
        pass
    first = "annotate  100 / 100 pairs  100 %  5 pairs/s  took 20 s  loss 0.5"
    assert stream.getvalue() == f"{first}\nnone  0 / 0 pairs    took 0 s\n"


def test_on_a_terminal_a_line_is_written_over(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    with Progress(10, "steps", "train", stream=stream) as progress:
        progress.update(4, loss=1.0)
        progress.log("a [b]note")
        clock.now += 8
        progress.update(9)
    first, last = stream.getvalue().split("a [b]note\n")
    assert (first.count("\n"), last.count("\n")) == (0, 1)
    assert last.endswith("\r\x1b[2Ktrain  9 / 10 steps  90 %  0.625 steps/s  2 s left  loss 1\n\x1b[?25h")


def test_a_profile_has_the_configured_steps_and_prints_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []
    for name in ("start_server", "start_trace", "stop_trace"):
        monkeypatch.setattr(
            f"jax.profiler.{name}", lambda *arguments, name=name: done.append((name, *arguments))
        )
    for arguments in ({"start": 2, "steps": 3, "server_port": 9}, {}, {"start": 0}):
        profiler = Profiler(tmp_path, **arguments)
        for step in range(70, 80):
            done.append(step)
            profiler.step(step)
        profiler.close()
    folder = tmp_path / "profile"
    begun, ended, steps = ("start_trace", str(folder)), ("stop_trace",), list(range(70, 80))
    from_the_third = [*steps[:3], begun, *steps[3:6], ended, *steps[6:]]
    from_the_first = [steps[0], begun, *steps[1:6], ended, *steps[6:]]
    assert done == [("start_server", 9), *from_the_third, *steps, *from_the_first]
    assert folder.is_dir()
    assert capsys.readouterr().out == f"profile: {folder} (tensorboard --logdir, or xprof)\n" * 2


def test_numbers_and_times_read_well() -> None:
    times = {-1: "0 s", 59.4: "59 s", 59.6: "1 min", 200: "3 min 20 s", 3599: "59 min 59 s", 3600: "1 h"}
    times |= {3 * 3600 + 120: "3 h 2 min", 172800: "2 d", 47 * 3600: "47 h", 4 * 86400 + 3600: "4 d 1 h"}
    assert {seconds: format_seconds(seconds) for seconds in times} == times
    numbers = {12345.6: "12,346", 1000.0: "1,000", 999.4: "999", 0.000123456: "0.000123", 7: "7", 0.0: "0"}
    numbers |= {float("nan"): "nan", float("inf"): "inf", "a": "a", 1234567: "1,234,567"}
    assert {number: format_number(number) for number in numbers} == numbers


def _tensorboard_steps(folder: Path) -> list[list[tuple[int, str, float]]]:
    """Of each file, scalars by step, and as `purged` the step from which earlier files are left out."""
    points: list[list[tuple[int, str, float]]] = []
    for path in sorted(folder.glob("events*")):
        data = path.read_bytes()
        points.append([])
        while data:
            size = int.from_bytes(data[:8], "little")
            event = event_pb2.Event.FromString(data[12 : 12 + size])
            points[-1] += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            points[-1] += [(event.step, "purged", 0.0)] * event.HasField("session_log")
            data = data[16 + size :]
    return points


def test_metrics_resume_where_the_checkpoint_stands(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as writer:
        for step in (10, 20, 30):
            writer.write(step, {"loss/total": 1.0 / step, "bad": float("nan")})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 40, "torn')
    with MetricsWriter(tmp_path, resume_step=20) as writer:
        writer.write(30, {"loss/total": 5.0})
        assert len(_tensorboard_steps(tmp_path / "tensorboard")[1]) == 2, "on the disk at once"
    rows = [{name: row[name] for name in row if name != "time"} for row in read_metrics(tmp_path)]
    assert rows == [
        {"step": 10, "loss/total": 0.1, "bad": None},
        {"step": 20, "loss/total": 0.05, "bad": None},
        {"step": 30, "loss/total": 5.0},
    ]
    first = [(10, "loss/total", 0.1), (20, "loss/total", 0.05), (30, "loss/total", 1 / 30)]
    assert _tensorboard_steps(tmp_path / "tensorboard") == [
        [(step, tag, pytest.approx(value)) for step, tag, value in first],
        [(21, "purged", 0.0), (30, "loss/total", 5.0)],
    ]
    with MetricsWriter(tmp_path) as writer:
        writer.close()
    assert (tmp_path / "metrics.jsonl").read_text() == "", "a new run"


def test_wandb_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"motif-jax\[wandb\]"):
        MetricsWriter(tmp_path, wandb={"project": "p"})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_is_a_request(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(number)
    with interruption.Interruption() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert (stop.requested, stop.signal_name) == (True, number.name)
        line = f"{number.name}: saving and stopping; the same command continues\n"
        assert capfd.readouterr().err == line
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as left:
            stop.leave()
        assert left.value.args == (() if number == signal.SIGINT else (128 + number,))
        if number == signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    with interruption.Interruption(quiet=True) as stop:
        os.kill(os.getpid(), signal.SIGHUP)
    assert (stop.requested, capfd.readouterr().err) == (True, "")


def test_a_resumed_run_removes_files_of_killed_writers(tmp_path):
    names = (".a.json.x.tmp", "recordings/.episode.json.x.tmp", "plots/.a.png.x.tmp")
    left = [tmp_path / name for name in names]
    others = tmp_path / "answers" / ".theirs.x.tmp"
    for path in (*left, others):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    run_folder.prepare(tmp_path, ConfigDict({"seed": 1}))
    assert not [path for path in left if path.exists()]
    assert others.exists(), "of whoever keeps answers there"
