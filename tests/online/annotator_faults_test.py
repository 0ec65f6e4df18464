"""A training whose annotator, a process of its own, is killed while it runs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from motif_jax.annotation.supervised import ProcessSource
from motif_jax.online.learner import Learner
from motif_jax.rewards.label_log import FILE, Label, read_log
from motif_jax.support.errors import UserError
from motif_jax.support.metrics import read_metrics
from tests.online.oni_runs import oni_config, train
from tests.processes import still_there, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_quickly")]
TEXTS = {*(f"the cue is {cue}" for cue in range(4)), "which cue?", ""}


def kill_at(monkeypatch: pytest.MonkeyPatch, updates: set[int]) -> list[ProcessSource]:
    """Kills the annotator's process before these updates, and waits until it is seen to be up again, or the source gives up."""
    sources: list[ProcessSource] = []
    start, step = ProcessSource.start, Learner.step

    def started(self: ProcessSource) -> None:
        start(self)
        sources.append(self)

    def watched(self: Learner, batch: Any) -> None:
        if self.version in updates:
            [source] = sources
            restarts = source.metrics()["annotator/restarts"]
            os.kill(source.pid, signal.SIGKILL)

            def seen() -> bool:
                figures = source.metrics()
                return figures["annotator/restarts"] > restarts and figures["annotator/server_up"] == 1

            def over() -> bool:
                try:
                    source.meet([], [], None, 0)
                except UserError:
                    return True
                return seen()

            wait_until(over, "the process is up again, or the source has given up")
        step(self, batch)

    monkeypatch.setattr(ProcessSource, "start", started)
    monkeypatch.setattr(Learner, "step", watched)
    return sources


def config(folder: Path, **changes: Any) -> Any:
    return oni_config(
        "retrieval", annotator__store_dir=str(folder / "store"), train_for_env_steps=800, **changes
    )


def test_it_goes_on_without_a_lost_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = kill_at(monkeypatch, {1})
    train(tmp_path / "run", config(tmp_path))
    assert len(sources) == 1
    assert list(read_metrics(tmp_path / "run"))[-1]["annotator/restarts"] == 1
    labels = [record for record in read_log(tmp_path / "run" / FILE) if isinstance(record, Label)]
    texts = [label.items[0] for label in labels]
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
