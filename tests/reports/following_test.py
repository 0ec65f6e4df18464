"""A page beside a training: written while the run holds its folder, and once more after its end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import EXIT_CODE
from motif_jax.core.locks import FolderLock, is_held
from motif_jax.reports import following, report
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation
from tests.reward_fixtures import load_config


def test_a_folder_is_held_while_a_process_has_its_lock(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    with FolderLock(tmp_path):
        assert is_held(tmp_path)
    assert not is_held(tmp_path)


def test_the_last_page_is_written_after_the_runs_end(tmp_path: Path) -> None:
    training = FolderLock(tmp_path)
    training.__enter__()
    pages = []

    def write(is_running: bool) -> None:
        pages.append(is_running)
        if len(pages) == 2:
            training.__exit__(None, None, None)

    code = following.follow(tmp_path, 0, write)

    assert pages == [True, True, False]
    assert code is None


def test_an_interruption_ends_the_wait_for_the_next_page(tmp_path: Path) -> None:
    def write(is_running: bool) -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()

    with FolderLock(tmp_path):
        code = following.follow(tmp_path, 3600, write)

    assert code == EXIT_CODE


def test_the_page_of_a_training_that_goes_on_renews_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_agent_run(tmp_path / "agent", episodes=41)
    values = {"agent.dir": str(tmp_path / "agent"), "follow": True, "follow_seconds": 7}
    config = load_config("report", "smoke", values)
    pages = []

    def write_twice(run: Path, seconds: int, write: Callable[[bool], None]) -> None:
        for is_running in (True, False):
            write(is_running)
            pages.append((tmp_path / "page" / "report.html").read_text())

    monkeypatch.setattr(following, "follow", write_twice)
    # charts take seconds
    monkeypatch.setattr("motif_jax.display.charts.figure", lambda plot: plot.title)
    report.run(config, tmp_path / "page")

    renewal = '<meta http-equiv="refresh" content="7">'
    assert renewal in pages[0]
    assert renewal not in pages[1]


def test_a_page_that_cannot_be_written_ends_no_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training removes old checkpoints while its folder is read."""
    write_agent_run(tmp_path / "agent", episodes=41)
    config = load_config("report", "smoke", {"agent.dir": str(tmp_path / "agent"), "follow": True})

    def refuse(*_: object, **__: object) -> None:
        raise UserError("checkpoint 7 is gone")

    def write_then_end(run: Path, seconds: int, write: Callable[[bool], None]) -> None:
        write(True)
        with pytest.raises(UserError, match="checkpoint 7 is gone"):
            write(False)

    monkeypatch.setattr(following, "follow", write_then_end)
    monkeypatch.setattr("motif_jax.reports.run_data.RunData.__init__", refuse)

    report.run(config, tmp_path / "page")

    assert "no page this time: checkpoint 7 is gone" in capsys.readouterr().err


def test_only_a_training_can_be_followed(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "evaluation", "agent", evaluation_rows(2, 1.0, 1))
    config = load_config(
        "report", "", {"evaluations": str(tmp_path / "evaluation"), "follow": True}
    )

    with pytest.raises(UserError, match=r"config\.follow=True: must be False, or agent\.dir"):
        report.check(config, tmp_path / "page")
