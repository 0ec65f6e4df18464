"""evaluate, replay and visualize: what they check, in which order they write, and continuing after a stop."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
from types import SimpleNamespace

import pytest
from rich.console import Console

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import EXIT_CODE
from motif_jax.play import evaluate, evaluation_files, evaluation_setup, keyboard, replay, visualize, watching
from tests import recorded_outputs
from tests.reward_fixtures import load_config


def evaluate_config(**changes):
    values = {"episodes": 3, "resamples": 50, "forms.ttyrec": False, "environment.max_episode_steps": 30}
    return load_config("evaluate", "smoke", {**values, **changes})


def run(stage, config, workdir):
    stage.check(config, workdir)
    return stage.run(config, workdir)


def test_games_are_shown_kept_once_and_replayed(tmp_path, monkeypatch, record):
    values = {"environment.name": "Recall-v0", "environment.max_episode_steps": 7, "forms.ttyrec": False}
    config = load_config("visualize", "smoke", {**values, "episodes": 2, "top_messages": 2})
    stream, typed = io.StringIO(), iter(["+", "-", " ", None, " ", "right", "n", "e", "x", "right", "q"])
    console = Console(file=stream, width=100, height=24, force_terminal=True, color_system=None)
    monkeypatch.setattr(visualize, "Console", lambda: console)
    for episodes in (2, 3):
        config.episodes = episodes
        assert run(visualize, config, tmp_path / "kept") is None
    replayed = replay_config(recordings=f"{tmp_path}/kept,{tmp_path}/kept/episode-00002.json")
    assert run(replay, replayed, tmp_path / "replayed") is None
    monkeypatch.setattr(keyboard, "is_terminal", lambda: True)
    monkeypatch.setattr(visualize, "time", SimpleNamespace(monotonic=lambda: 0.0))
    keys = contextlib.nullcontext(lambda seconds: next(typed) if seconds else None)
    monkeypatch.setattr(keyboard, "single_keys", lambda: keys)
    config.live, config.seconds_per_step, config.seed = True, 1000.0, 3
    assert run(visualize, config, tmp_path / "shown") is None
    assert next(typed, "all keys were asked for") == "all keys were asked for"
    names = {tmp_path: "FOLDER"}
    parts = recorded_outputs.of_folder(tmp_path, names)
    parts["told"] = recorded_outputs.replaced(stream.getvalue(), names)
    left_out = ("config.json", "kept/episode-00000.html", "0001.html", "0002.html")
    parts = {name: text for name, text in parts.items() if not name.endswith(left_out)}
    recorded_outputs.assert_matches_packed_recording("watched", parts, record)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """An evaluation of three short random games."""
    folder = tmp_path_factory.mktemp("evaluated") / "e"
    assert run(evaluate, evaluate_config(), folder) is None
    return folder


@pytest.fixture
def evaluation(evaluated, tmp_path):
    """A copy to change."""
    return shutil.copytree(evaluated, tmp_path / "e")


def stop_after_first_film(monkeypatch):
    """The first film that is made ends with a SIGTERM to this process."""
    real, made = watching.film_recording, []

    def film_recording(*arguments):
        film = real(*arguments)
        if not made:
            os.kill(os.getpid(), signal.SIGTERM)
        made.append(film.seed)
        return film

    monkeypatch.setattr(watching, "film_recording", film_recording)
    return made


@pytest.mark.slow
def test_a_stop_between_films_ends_with_75_and_goes_on_later(evaluation, monkeypatch):
    made = stop_after_first_film(monkeypatch)
    config = evaluate_config(show_best=3)
    for ended, films in ((EXIT_CODE, 1), (None, 3), (None, 3)):
        assert run(evaluate, config, evaluation) == ended
        assert len(made) == len(set(made)) == films, "a finished film was made again"
        assert len(list((evaluation / "recordings").glob("*.html"))) == films


@pytest.mark.slow
def test_a_row_that_the_game_does_not_repeat_is_not_filmed(evaluation):
    journal = evaluation / evaluation_files.JOURNAL
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    changed = [{**row, "dlvl": 7.0} if row["index"] == 1 else row for row in rows]
    journal.write_text("".join(json.dumps(row) + "\n" for row in changed))
    with pytest.raises(UserError, match=r"episode 1 .* \(dlvl 7 written, 1 now\)"):
        run(evaluate, evaluate_config(show_best=3), evaluation)


def replay_config(**changes):
    return load_config("replay", "", {"forms.ttyrec": False, **changes})


@pytest.mark.slow
def test_a_stopped_replay_goes_on_behind_the_last_film(evaluation, tmp_path, monkeypatch):
    made = stop_after_first_film(monkeypatch)
    config = replay_config(evaluation=str(evaluation), episodes="all")
    assert run(replay, config, tmp_path / "r") == EXIT_CODE
    assert run(replay, config, tmp_path / "r") is None
    assert len(made) == len(set(made)) == 3
    assert len(list((tmp_path / "r").glob("*.html"))) == 3
    config.forms.gif, config.forms.stop = True, 3
    assert run(replay, config, tmp_path / "r") is None
    assert len(made) == 6, "other forms are other films"
    monkeypatch.setattr(evaluation_setup, "digests_of", lambda *_: {"reward": "another"})
    assert run(replay, config, tmp_path / "r") is None
    assert len(made) == 9, "so are those of what was trained again under the same name"


@pytest.mark.slow
@pytest.mark.parametrize("key", ["agent", "reward"])
def test_an_agent_or_reward_that_has_moved_is_told(key, evaluation, tmp_path):
    summary = json.loads((evaluation / evaluation_files.SUMMARY).read_text())
    if key == "agent":
        summary["plan"] |= {"policy": "/gone/agent", "checkpoint": 100}
    else:
        settings = {"step": 3, "normalise": True, "quantile": 0.5, "count_exponent": 3.0}
        summary["plan"]["reward"] = {"dir": "/gone/reward", **settings}
    rows = evaluation_files.read_rows(evaluation / evaluation_files.JOURNAL)
    evaluation_files.write_summary(evaluation, summary, rows)
    config = replay_config(evaluation=str(evaluation), episodes="1")
    said = rf"config.{key}.dir=None: .*/gone/{key}, which does not exist: give --config.{key}.dir=DIR, or --config.{key}.dir= "
    with pytest.raises(UserError, match=said):
        replay.check(config, tmp_path / "r")
    config[key].dir = ""
    assert run(replay, config, tmp_path / "r") is None
    assert (tmp_path / "r" / "episode-00001.html").exists()
