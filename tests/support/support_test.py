"""Seeds, configs, run folders, progress, metrics and interruption."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ml_collections import ConfigDict
from tensorboardX.proto import event_pb2

from motif_jax.support import config as checks
from motif_jax.support import interruption, run_folder, seeds
from motif_jax.support.errors import UserError
from motif_jax.support.metrics import MetricsWriter, read_metrics
from motif_jax.support.profiling import Profiler
from motif_jax.support.progress import Progress, format_number, format_seconds


def test_derived_seeds_are_stable_and_separate() -> None:
    assert seeds.derive(777, "env", 3) == 5787547274941599065
    many = {seeds.derive(1, "env", i, j) for i in range(50) for j in range(50)}
    assert len(many) == 2500
    assert all(0 <= seed < 2**63 for seed in many)
    assert len({seeds.derive(1, *path) for path in (("a", 1), ("a", "1"), ("a1",))}) == 3
    assert seeds.rng(1, "a").integers(1000) == seeds.rng(1, "a").integers(1000)


def test_what_a_user_is_told_is_one_line() -> None:
    assert str(UserError("a: \n  b\tc\r\nd\n")) == "a: b c d"


def test_a_number_is_finite_if_a_float_can_hold_it() -> None:
    assert all(map(checks.is_finite, (0, -1.5, 10**308)))
    assert not any(map(checks.is_finite, (10**400, -(10**400), float("nan"), float("inf"), True, "1", None)))


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
    assert {"versions", "git_revision", "command"} <= set(versions)
    assert "numpy" in versions["versions"]
    with pytest.raises(UserError, match="not a run folder"):
        run_folder.read_config(tmp_path)
    with pytest.raises(UserError, match=r"--workdir=.*config\.json/below cannot be made: "):
        run_folder.prepare(run / "config.json" / "below", config)


def test_of_two_at_once_in_one_folder_the_second_is_refused(tmp_path: Path) -> None:
    first, second = (ConfigDict({"stage": "toy", "seed": seed}) for seed in (1, 2))
    refused = pytest.raises(UserError, match=f"{tmp_path} is in use by process {os.getpid()}")
    with run_folder.opened(tmp_path, first), refused, run_folder.opened(tmp_path, second):
        pass
    assert run_folder.read_config(tmp_path)["seed"] == 1
    with run_folder.opened(tmp_path, second):
        assert run_folder.read_config(tmp_path)["seed"] == 2


def test_progress_says_count_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, seconds = io.StringIO(), itertools.count(1000.0)
    monkeypatch.setattr("motif_jax.support.progress.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with Progress(100, "pairs", "annotate", stream=stream) as progress:
        progress.update(0)
        progress.update(10)
        assert " left" not in progress.line(), "until the first are done programs are compiled"
        progress.update(40, loss=0.123456)
        for part in ("annotate  40 / 100 pairs  40 %", "15 pairs/s", "4 s left"):
            assert part in progress.line()
        progress.log("a note\nof \x1b[2J")
        progress.update(41, last="\x1b]0;owned\x07")
        progress.update(124)  # the last batch may go beyond
    text = stream.getvalue()
    said = "a note\nof \\x1b[2J", r"last \x1b]0;owned\x07", "124 / 100 pairs  100 %", "took", "loss 0.123"
    assert [part for part in said if part not in text] == []
    assert "\x1b" not in text


def test_the_last_line_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, clock = io.StringIO(), SimpleNamespace(now=1000.0)
    monkeypatch.setattr("motif_jax.support.progress.time", SimpleNamespace(monotonic=lambda: clock.now))
    with Progress(100, "pairs", "annotate", stream=stream) as progress:
        clock.now += 20
        progress.update(100, loss=0.5)
        clock.now += 1
    assert stream.getvalue() == "annotate  100 / 100 pairs  100 %  5 pairs/s  took 20 s  loss 0.5\n"


def test_a_profile_says_where_it_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profiler = Profiler(tmp_path, start=0, steps=1)
    profiler.step(0)
    profiler.step(1)
    assert capsys.readouterr().out.startswith(f"profile: {tmp_path / 'profile'} ")
    assert any(path.is_file() for path in (tmp_path / "profile").rglob("*"))


def test_numbers_and_times_read_well() -> None:
    times = {-1: "0 s", 59.4: "59 s", 59.6: "1 min", 200: "3 min 20 s", 3599: "59 min 59 s", 3600: "1 h"}
    times |= {3 * 3600 + 120: "3 h 2 min", 172800: "2 d", 47 * 3600: "47 h", 4 * 86400 + 3600: "4 d 1 h"}
    assert {seconds: format_seconds(seconds) for seconds in times} == times
    numbers = {12345.6: "12,346", 1000.0: "1,000", 999.4: "999", 0.000123456: "0.000123", 7: "7", 0.0: "0"}
    assert {number: format_number(number) for number in numbers} == numbers
    assert (format_number(float("nan")), format_number("a")) == ("nan", "a")


def _tensorboard_steps(folder: Path) -> list[tuple[int, str]]:
    found = []
    for path in sorted(folder.glob("events*")):
        data = path.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            event = event_pb2.Event.FromString(data[12 : 12 + size])
            found += [(event.step, value.tag) for value in event.summary.value]
            data = data[16 + size :]
    return found


def test_metrics_resume_where_the_checkpoint_stands(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as writer:
        for step in (10, 20, 30):
            writer.write(step, {"loss/total": 1.0 / step, "bad": float("nan")})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 40, "torn')
    with MetricsWriter(tmp_path, resume_step=20) as writer:
        writer.write(30, {"loss/total": 5.0})
    rows = [(row["step"], row["loss/total"], row.get("bad", "")) for row in read_metrics(tmp_path)]
    assert rows == [(10, 0.1, None), (20, 0.05, None), (30, 5.0, "")]
    assert (30, "loss/total") in _tensorboard_steps(tmp_path / "tensorboard")


def test_damaged_metrics_are_told_before_they_are_written_over(tmp_path: Path) -> None:
    damaged = b'{"step": 1}\n{"step": 2, \xff}\n{"step": 3}\n'
    (tmp_path / "metrics.jsonl").write_bytes(damaged)
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged in line 2"):
        MetricsWriter(tmp_path, resume_step=3)
    assert (tmp_path / "metrics.jsonl").read_bytes() == damaged


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
        said = f"{number.name}: saving and stopping; the same command continues\n"
        assert capfd.readouterr().err == said
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as left:
            stop.leave()
        assert left.value.args == (() if number == signal.SIGINT else (128 + number,))
        if number == signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_what_killed_writers_left_in_a_run_folder_goes_when_it_goes_on(tmp_path):
    names = (".a.json.x.tmp", "recordings/.episode.json.x.tmp", "plots/.a.png.x.tmp")
    left = [tmp_path / name for name in names]
    others = tmp_path / "answers" / ".theirs.x.tmp"
    for path in (*left, others):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    run_folder.prepare(tmp_path, ConfigDict({"seed": 1}))
    assert not [path for path in left if path.exists()]
    assert others.exists(), "of whoever keeps answers there"
