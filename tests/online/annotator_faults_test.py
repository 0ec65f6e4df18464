"""A training whose annotator, a process of its own, is killed or hangs while it runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motif_jax.annotation import supervised
from motif_jax.annotation.supervised import ProcessSource
from motif_jax.online.learner import Learner
from motif_jax.rewards.label_log import FILE, Label, read_log
from motif_jax.support.errors import UserError
from motif_jax.support.metrics import read_metrics
from tests.online.oni_runs import oni_config, train
from tests.processes import still_there, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_quickly")]
TEXTS = {*(f"the cue is {cue}" for cue in range(4)), "which cue?", ""}
# Of 17 updates; by then everything was met, and what is answered is heard of before the last one.
LATE = 12


def before_updates(
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[ProcessSource, int], None],
    after_start: Callable[[ProcessSource], None] = lambda source: None,
) -> list[ProcessSource]:
    """Calls `act` before each update, with its number; late in the run all that was asked is answered, however slowly."""
    sources: list[ProcessSource] = []
    start, step = ProcessSource.start, Learner.step

    def started(self: ProcessSource, stopped: Callable[[], bool]) -> None:
        start(self, stopped)
        after_start(self)
        sources.append(self)

    def watched(self: Learner, batch: Any) -> None:
        [source] = sources
        act(source, self.version)
        if self.version == LATE:
            wait_until(lambda: idle(source), "all is answered")
        step(self, batch)

    monkeypatch.setattr(ProcessSource, "start", started)
    monkeypatch.setattr(Learner, "step", watched)
    return sources


def idle(source: ProcessSource) -> bool:
    figures = source.metrics()
    return figures["annotator/queued"] + figures["annotator/in_flight"] == 0


def kill_at(monkeypatch: pytest.MonkeyPatch, updates: set[int]) -> list[ProcessSource]:
    """Kills the annotator's process before these updates, and waits until it is seen to be up again, or the source gives up."""

    def kill(source: ProcessSource, update: int) -> None:
        if update not in updates:
            return
        restarts = source.metrics()["annotator/restarts"]
        os.kill(source.pid, signal.SIGKILL)

        def over() -> bool:
            try:
                source.meet([], [], None, 0)
            except UserError:
                return True
            figures = source.metrics()
            return figures["annotator/restarts"] > restarts and figures["annotator/server_up"] == 1

        wait_until(over, "the process is up again, or the source has given up")

    return before_updates(monkeypatch, kill)


def config(folder: Path, **changes: Any) -> Any:
    return oni_config(
        "retrieval", annotator__store_dir=str(folder / "store"), train_for_env_steps=800, **changes
    )


def labels(folder: Path) -> list[Label]:
    return [record for record in read_log(folder / FILE) if isinstance(record, Label)]


def test_it_goes_on_without_a_lost_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = kill_at(monkeypatch, {1})
    train(tmp_path / "run", config(tmp_path))
    assert len(sources) == 1
    assert list(read_metrics(tmp_path / "run"))[-1]["annotator/restarts"] == 1
    texts = [label.items[0] for label in labels(tmp_path / "run")]
    assert len(set(texts)) == len(texts)
    assert set(texts) == TEXTS
    assert not still_there({sources[0].pid})


def test_one_that_dies_too_often_ends_it_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at(monkeypatch, {1, 2})
    with pytest.raises(UserError, match=r"died 2 times within an hour, at last by signal 9.*restarts=1"):
        train(tmp_path / "run", config(tmp_path, annotator__restarts=1))
    # The same command goes on.
    monkeypatch.undo()
    train(tmp_path / "run", config(tmp_path, annotator__restarts=1))
    assert list(read_metrics(tmp_path / "run"))[-1]["step"] >= 800


def test_one_that_hangs_holds_nobody_up_and_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "_HANG_SECONDS", 1e9)
    stopped: list[int] = []

    def stop(source: ProcessSource) -> None:
        os.kill(source.pid, signal.SIGSTOP)
        stopped.append(source.pid)

    def wait(source: ProcessSource, update: int) -> None:
        if update != 5:
            return
        assert not labels(tmp_path / "run"), "updates went on, and nothing has come"
        with monkeypatch.context() as patience:
            # On a busy machine it may be too short for its successor, too, which is no fault.
            patience.setattr(supervised, "_HANG_SECONDS", 1.0)
            wait_until(lambda: not still_there(set(stopped)), "it is ended")

    before_updates(monkeypatch, wait, stop)
    changes = {"annotator__restarts": 100, "annotator__openai__timeout_seconds": 0.1}
    train(tmp_path / "run", config(tmp_path, **changes))
    assert list(read_metrics(tmp_path / "run"))[-1]["annotator/restarts"] >= 1
    log = labels(tmp_path / "run")
    assert sorted(label.items[0] for label in log) == sorted(TEXTS)
    assert min(label.number for label in log) >= 5
