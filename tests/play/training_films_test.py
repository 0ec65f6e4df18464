"""Films of the newest recorded game in a training's file of events."""

from __future__ import annotations

import io
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict
from PIL import Image

from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import Interruption
from motif_jax.core.metrics import MetricsWriter
from motif_jax.play import newest_game, training_films
from motif_jax.play.films import movie
from motif_jax.play.training_films import TAG, TrainingFilms
from motif_jax.rl.actors.rerecording import record_actions
from motif_jax.rl.clock import Clock
from motif_jax.rl.config import agent_config
from tests.core.metrics_test import images
from tests.play.agent_runs import changed
from tests.reward_fixtures import REPOSITORY, load_config
from tests.rl.runs import train
from tests.sets import extra

TASK = "MiniGrid-DoorKey-8x8-v0"
REWARD = REPOSITORY / "docs/examples/doorkey/reward.safetensors"


def config_of(**changes: Any) -> ConfigDict:
    """The `minigrid` variant at the size of a test, with games that are recorded and filmed."""
    small = {
        "batch_size": 128, "rollout": 8, "network__hidden_size": 16, "network__flat_sizes": (16,), "actors__workers": 1,
        "actors__envs_per_worker": 4, "devices__learner": "0", "compile_cache": "", "environment__max_episode_steps": 20,
        "record_every": 2, "film_every_seconds": 0.5, "reward__dir": str(REWARD),
    }  # fmt: skip
    return changed(load_config("train_agent", "minigrid"), **{**small, **changes})


def record(run: Path, step: int, seed: int = 1) -> Path:
    """Adds a recorded game of 20 steps to a run."""
    actions = np.random.default_rng(seed).integers(0, 6, 20)
    path = run / "recordings" / f"step-{step:012d}-env-00000-episode-000000.json"
    path.parent.mkdir(exist_ok=True)
    record_actions(TASK, {"max_episode_steps": 20}, seed, actions).save(path)
    return path


class Films:
    """The films of a training whose updates the test makes."""

    def __init__(self, run: Path) -> None:
        config = config_of()
        run_folder.describe(run, run_folder.as_plain(config))
        self.clock = Clock(1000, 1000, 1000.0, 1000.0)
        self.writer = MetricsWriter(run)
        self.hook = TrainingFilms(run, 0.0, self.clock, self.writer)

    def update(self, step: int) -> None:
        self.clock.steps = step
        self.hook.after_update(0, step, 0.0, {})

    def update_until(self, is_done: Callable[[], bool]) -> None:
        """Makes updates, at most for two minutes."""
        deadline = time.monotonic() + 120.0
        while not is_done() and time.monotonic() < deadline:
            self.update(self.clock.steps + 1)
            time.sleep(0.02)
        assert is_done()

    def is_idle(self) -> bool:
        return self.hook.film_process is None

    def written(self, run: Path) -> list[int]:
        """Steps at which films were written."""
        self.writer.flush()
        return [step for step, tag, _ in images(run / "tensorboard") if tag == TAG]


@pytest.fixture
def films(tmp_path: Path) -> Iterator[Films]:
    films = Films(tmp_path)
    yield films
    films.hook.close()
    films.writer.close()


@pytest.mark.slow
def test_each_new_game_becomes_a_film_once(films: Films, tmp_path: Path) -> None:
    films.update(10)
    assert films.is_idle(), "nothing is recorded yet"

    for step in (20, 40):
        record(tmp_path, step)
        films.update(step)
        films.update_until(films.is_idle)
    films.update(60)

    assert films.is_idle(), "nothing is newer"
    assert len(films.written(tmp_path)) == 2
    (_, _, image) = images(tmp_path / "tensorboard")[-1]
    with Image.open(io.BytesIO(image.encoded_image_string)) as picture:
        assert picture.size == (image.width, image.height)
        assert getattr(picture, "n_frames", 1) > 5


@pytest.mark.slow
def test_a_game_that_does_not_replay_is_one_line(
    films: Films, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = record(tmp_path, 20)
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 2'))

    films.update(20)
    films.update_until(films.is_idle)

    (line,) = capfd.readouterr().err.splitlines()
    problem = f"the replay of {TASK} with seed 2 is not the episode"
    assert line.startswith(f"no film of the newest recorded game: {problem}")
    assert films.written(tmp_path) == []


@pytest.mark.slow
def test_a_film_whose_process_cannot_start_is_tried_again(
    films: Films, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, 20)

    def fail(*_: Any) -> None:
        raise BlockingIOError("no more processes")

    with monkeypatch.context() as patch:
        patch.setattr(training_films, "WorkerProcess", fail)
        films.update(20)
    assert films.is_idle()
    films.update(21)
    films.update_until(films.is_idle)

    assert "no more processes" in capfd.readouterr().err
    assert len(films.written(tmp_path)) == 1


def test_a_renderer_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bytes:
        raise ValueError("no font\nat all")

    monkeypatch.setattr(movie, "bounded_gif", fail)
    run_folder.describe(tmp_path, run_folder.as_plain(config_of(reward__dir="")))
    path = record(tmp_path, 20)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    monkeypatch.setenv("JAX_PLATFORMS", os.environ["JAX_PLATFORMS"])
    try:
        maker = newest_game.GifMaker({"run": str(tmp_path)})
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    assert maker.answer("") == f"{path.name}: ValueError: no font"


@pytest.mark.slow
def test_a_dead_process_costs_one_line_and_one_film(
    films: Films, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, 20)
    films.update(20)
    assert films.hook.film_process is not None
    pid = films.hook.film_process.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    films.update_until(films.is_idle)
    record(tmp_path, 40)
    films.update(40)
    films.update_until(films.is_idle)

    line = "no film of the newest recorded game: the process that made it died, or needed more than 10 minutes\n"
    assert capfd.readouterr().err == line
    assert len(films.written(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "count"), [extra(120.0, 1), (0.0, 0)])
def test_the_last_film_is_waited_for_within_its_time(
    films: Films, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, count: int
) -> None:
    monkeypatch.setattr(training_films, "CLOSE_SECONDS", seconds)
    record(tmp_path, 20)
    films.update(20)
    films.hook.close()

    assert len(films.written(tmp_path)) == count


def test_a_resumed_run_does_not_show_its_old_games_again(tmp_path: Path) -> None:
    record(tmp_path, 20)
    films = Films(tmp_path)
    films.update(30)
    films.hook.close()
    films.writer.close()

    assert films.is_idle()


def test_the_newest_recording_is_that_of_the_latest_step(tmp_path: Path) -> None:
    assert newest_game.find(tmp_path) is None
    newest = record(tmp_path, 1000)
    shutil.copy(newest, newest.with_name("step-000000000900-env-00009-episode-000009.json"))
    shutil.copy(newest, newest.with_name("step-9999.json"))

    assert newest_game.find(tmp_path) == (newest, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("reward", [str(REWARD), ""])
def test_a_film_has_what_the_trainings_reward_pays(tmp_path: Path, reward: str) -> None:
    run_folder.describe(tmp_path, run_folder.as_plain(config_of(reward__dir=reward)))
    record(tmp_path, 20)
    game = newest_game.find(tmp_path)
    assert game is not None

    film = newest_game.film(game, newest_game.training_reward(tmp_path))

    assert len(film) == 21
    assert (film.intrinsic is not None) == (reward != "")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"record_every": 0}, "must be 0 without record_every: a film shows a recorded game"),
        (
            {"environment__name": "Recall-v0"},
            "must be 0: Recall-v0 has no screen to make a movie of",
        ),
    ],
)
def test_what_cannot_be_filmed_is_refused(
    tmp_path: Path, changes: dict[str, Any], line: str
) -> None:
    with pytest.raises(UserError, match=rf"^config\.film_every_seconds=0\.5: {line}$"):
        TrainingFilms.check(agent_config(config_of(**changes)), tmp_path)


@pytest.mark.extra
def test_a_training_shows_its_games_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped once it has shown one."""
    stop = Interruption()
    write_film = MetricsWriter.write_film

    def write_and_stop(writer: MetricsWriter, step: int, name: str, gif: bytes) -> None:
        write_film(writer, step, name, gif)
        stop.requested = True

    monkeypatch.setattr(MetricsWriter, "write_film", write_and_stop)
    task_alone = {"reward__dir": "", "reward__intrinsic_coefficient": 0.0}
    train(tmp_path, config_of(train_for_env_steps=10_000_000, **task_alone), stop)

    films = images(tmp_path / "tensorboard")
    assert {tag for _, tag, _ in films} == {TAG}
    with Image.open(io.BytesIO(films[0][2].encoded_image_string)) as picture:
        assert getattr(picture, "n_frames", 1) > 1
