"""evaluate and visualize: what they check, in which order they write, and continuing after a
stop.
"""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import EXIT_CODE
from motif_jax.envs.recording import Recording
from motif_jax.play import (
    evaluate,
    evaluation_files,
    evaluation_setup,
    visualize,
    watching,
)
from tests.play import untrained
from tests.play.watched_stages import films_of, run, visualize_config
from tests.reward_fixtures import load_config


def evaluate_config(**changes):
    values = {
        "episodes": 3,
        "environment.max_episode_steps": 30,
    }
    return load_config("evaluate", "smoke", {**values, **changes})


def test_kept_episodes_can_be_played_again(tmp_path, stream):
    run(visualize, visualize_config(), tmp_path)

    for number in (0, 1):
        recording = Recording.load(tmp_path / f"episode-0000{number}.json")
        film = watching.film_recording(recording, "title")
        assert (film.seed, film.info["length"]) == (recording.seed, 6.0)
    assert {name: film["files"] for name, film in films_of(tmp_path).items()} == {
        "episode-00000": ["episode-00000.html"],
        "episode-00001": ["episode-00001.html"],
    }
    # An observation more than actions.
    assert {film["steps"] for film in films_of(tmp_path).values()} == {7}


def test_episodes_that_are_kept_are_not_played_again(tmp_path, stream):
    config = visualize_config(episodes=2)
    run(visualize, config, tmp_path)
    stream.truncate(0)

    config.episodes = 3
    run(visualize, config, tmp_path)

    lines = stream.getvalue().splitlines()
    existing = [line.split(": ")[1] for line in lines if "exists already" in line]
    assert existing == [f"{tmp_path}/episode-0000{number}.html" for number in (0, 1)]
    assert [line for line in lines if line.startswith("written: ")] == [
        f"written: {tmp_path}/episode-00002.html"
    ]
    assert len(films_of(tmp_path)) == 3


def test_a_replay_films_each_recording_once(tmp_path, stream):
    recorded = tmp_path / "kept"
    run(visualize, visualize_config(), recorded)

    # The folder has the second recording too.
    files = f"{recorded},{recorded}/episode-00001.json"
    run(visualize, recorded_config(files=files), tmp_path / "replayed")

    films = films_of(tmp_path / "replayed")
    assert list(films) == ["episode-00000", "episode-00001"]
    for name in films:
        page = (tmp_path / "replayed" / f"{name}.html").read_text()
        assert f"<title>{name} of Recall-v0</title>" in page


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
    """The first film ends with a SIGTERM to this process; gives the seeds of all films that are
    made.
    """
    film_of = watching.Screening.film
    seeds = []

    def film_and_stop(*arguments):
        film = film_of(*arguments)
        if not seeds:
            os.kill(os.getpid(), signal.SIGTERM)
        seeds.append(film.seed)
        return film

    monkeypatch.setattr(watching.Screening, "film", film_and_stop)
    return seeds


@pytest.mark.slow
def test_a_stop_between_films_exits_75_and_the_rest_follows(evaluation, monkeypatch):
    seeds = stop_after_first_film(monkeypatch)
    config = evaluate_config(show_best=3)

    for code, films in ((EXIT_CODE, 1), (None, 3), (None, 3)):
        assert run(evaluate, config, evaluation) == code
        assert len(seeds) == films
        assert len(list((evaluation / "recordings").glob("*.html"))) == films

    assert len(set(seeds)) == 3, "a finished film was made again"


@pytest.mark.slow
def test_a_row_that_the_replay_contradicts_is_not_filmed(evaluation):
    journal = evaluation / evaluation_files.JOURNAL
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    for row in rows:
        if row["index"] == 1:
            row["dlvl"] = 7.0
    journal.write_text("".join(json.dumps(row) + "\n" for row in rows))

    with pytest.raises(UserError, match=r"episode 1 .* \(dlvl 7 written, 1 now\)"):
        run(evaluate, evaluate_config(show_best=3), evaluation)


def recorded_config(**changes):
    values = {f"recorded.{name}": value for name, value in changes.items()}
    return load_config("visualize", "", values)


@pytest.mark.slow
def test_a_stopped_replay_goes_on_after_the_last_film(evaluation, tmp_path, monkeypatch):
    seeds = stop_after_first_film(monkeypatch)
    config = recorded_config(evaluation=str(evaluation), episodes="all")

    assert run(visualize, config, tmp_path / "r") == EXIT_CODE
    assert run(visualize, config, tmp_path / "r") is None

    assert len(seeds) == len(set(seeds)) == 3
    assert len(list((tmp_path / "r").glob("*.html"))) == 3


@pytest.fixture
def replayed(evaluation, tmp_path, monkeypatch):
    """A config of a replay that has ended, its folder, and the seeds of the films that are made
    from now on.
    """
    config = recorded_config(evaluation=str(evaluation), episodes="all")
    run(visualize, config, tmp_path / "r")
    seeds = []
    film_of = watching.Screening.film

    def film(*arguments):
        film = film_of(*arguments)
        seeds.append(film.seed)
        return film

    monkeypatch.setattr(watching.Screening, "film", film)
    return config, tmp_path / "r", seeds


@pytest.mark.slow
def test_films_that_exist_are_not_made_again(replayed):
    config, folder, seeds = replayed

    assert run(visualize, config, folder) is None

    assert seeds == []


@pytest.mark.slow
def test_films_in_other_forms_are_made_anew(replayed):
    config, folder, seeds = replayed

    config.forms.gif = True
    config.forms.stop = 3
    assert run(visualize, config, folder) is None

    assert len(seeds) == 3


@pytest.mark.slow
def test_films_of_a_retrained_reward_are_made_again(replayed, monkeypatch):
    config, folder, seeds = replayed

    monkeypatch.setattr(evaluation_setup, "digests_of", lambda *_: {"reward": "another"})
    assert run(visualize, config, folder) is None

    assert len(seeds) == 3


@pytest.mark.extra
def test_an_agent_reads_its_fields_only_in_its_game(tmp_path):
    """The instruction, which recordings leave out; an agent of another game is refused."""
    recorded = tmp_path / "kept"
    game = {"environment.name": "BabyAI-GoToLocal-v0", "episodes": 1}
    run(visualize, visualize_config(**game), recorded)
    untrained.write(tmp_path / "agent", "symbolic", {"environment.name": "BabyAI-GoToLocal-v0"})
    untrained.write(tmp_path / "other", "recall", {})

    config = recorded_config(files=str(recorded), **{"agent.dir": str(tmp_path / "agent")})
    run(visualize, config, tmp_path / "r")

    assert (tmp_path / "r" / "episode-00000.html").is_file()
    config = recorded_config(files=str(recorded), **{"agent.dir": str(tmp_path / "other")})
    with pytest.raises(
        UserError,
        match=r"config\.recorded\.agent\.dir='.*other': must be an agent that can play BabyAI",
    ):
        visualize.check(config, tmp_path / "o")
