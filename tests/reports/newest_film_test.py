"""The film of the newest recorded game, on the page beside a training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.reports import following, newest_film, report
from motif_jax.reports.run_data import NewestFilm
from motif_jax.rl.actors.rerecording import record_actions
from tests.play import untrained
from tests.reward_fixtures import load_config

OPTIONS = {"cues": 4, "delay": 4, "max_episode_steps": 100}
LENGTH = 6  # of an episode with a delay of 4


def record(run: Path, step: int, env: int, seed: int) -> Path:
    """Adds a recorded game to a run, with its line among the episodes."""
    recording = record_actions("Recall-v0", OPTIONS, seed, np.zeros(LENGTH, np.int64))
    path = run / "recordings" / f"step-{step:012d}-env-{env:04d}-episode-000000.json"
    path.parent.mkdir(exist_ok=True)
    recording.save(path)
    row = {"step": step, "env": env, "episode": 0, "seed": seed, "return": 0.0, "length": LENGTH}
    with (run / "episodes.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A training with recordings of two games, the newer one with the smaller number of an
    environment.
    """
    untrained.write(tmp_path / "run", "recall", {"reward.intrinsic_coefficient": 0.0})
    record(tmp_path / "run", 900, 7, seed=1)
    record(tmp_path / "run", 1000, 2, seed=2)
    return tmp_path / "run"


def write_page(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page beside the training as it is written once."""

    def once(_: Path, __: int, write: Callable[[bool], None]) -> None:
        write(True)

    monkeypatch.setattr(following, "follow", once)
    # charts take seconds
    monkeypatch.setattr("motif_jax.display.charts.figure", lambda plot: plot.title)
    report.run(load_config("report", "smoke", {"agent.dir": str(run), "follow": True}), folder)
    return (folder / "report.html").read_text()


@pytest.mark.slow
def test_the_page_leads_to_the_newest_game(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = write_page(run, tmp_path / "page", monkeypatch)

    assert 'href="newest_game.html"' in page
    assert (
        "The newest recorded game, step 1,000"
        in (tmp_path / "page" / "newest_game.html").read_text()
    )


@pytest.mark.slow
def test_a_film_is_remade_only_of_a_newer_game(run: Path, tmp_path: Path) -> None:
    first = newest_film.write(run, tmp_path)
    made_at = (tmp_path / "newest_game.html").stat().st_mtime_ns

    assert newest_film.write(run, tmp_path) == first == NewestFilm("newest_game.html", 1000)
    assert (tmp_path / "newest_game.html").stat().st_mtime_ns == made_at

    record(run, 2000, 0, seed=3)
    assert newest_film.write(run, tmp_path) == NewestFilm("newest_game.html", 2000)
    assert "step 2,000" in (tmp_path / "newest_game.html").read_text()


@pytest.mark.slow
def test_a_page_lacks_the_film_of_an_unrepeatable_game(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record(run, 3000, 1, seed=4)
    path.write_text(path.read_text().replace('"seed": 4', '"seed": 5'))

    page = write_page(run, tmp_path / "page", monkeypatch)

    assert "newest_game.html" not in page
    assert capsys.readouterr().err.startswith("no film of the newest recorded game: ")
    with pytest.raises(UserError):
        newest_film.write(run, tmp_path / "page")


@pytest.mark.slow
def test_a_page_lacks_the_film_of_a_renderer_that_fails(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no font\nat all")

    monkeypatch.setattr("motif_jax.play.newest_game.film", fail)

    page = write_page(run, tmp_path / "page", monkeypatch)

    assert "newest_game.html" not in page
    name = "step-000000001000-env-0002-episode-000000.json"
    line = f"no film of the newest recorded game: {name}: ValueError: no font\n"
    assert capsys.readouterr().err == line


def test_without_recordings_there_is_no_film(tmp_path: Path) -> None:
    assert newest_film.write(tmp_path, tmp_path) is None
