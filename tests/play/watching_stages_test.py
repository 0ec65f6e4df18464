"""evaluate, replay and visualize: what they check, in which order they write, and continuing after
a stop.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal

import pytest
from rich.console import Console

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import EXIT_CODE
from motif_jax.envs.recording import Recording
from motif_jax.play import (
    evaluate,
    evaluation_files,
    evaluation_setup,
    keyboard,
    replay,
    visualize,
    watching,
)
from tests.play import untrained
from tests.reward_fixtures import load_config


def evaluate_config(**changes):
    values = {
        "episodes": 3,
        "resamples": 50,
        "forms.ttyrec": False,
        "environment.max_episode_steps": 30,
    }
    return load_config("evaluate", "smoke", {**values, **changes})


def run(stage, config, workdir):
    stage.check(config, workdir)
    return stage.run(config, workdir)


def visualize_config(**changes):
    values = {
        "environment.name": "Recall-v0",
        "environment.max_episode_steps": 7,
        "forms.ttyrec": False,
        "episodes": 2,
        "top_messages": 2,
    }
    return load_config("visualize", "smoke", {**values, **changes})


@pytest.fixture
def stream(monkeypatch):
    """What visualize prints on a terminal of 24 lines."""
    stream = io.StringIO()
    console = Console(file=stream, width=100, height=24, force_terminal=True, color_system=None)
    monkeypatch.setattr(visualize, "Console", lambda: console)
    return stream


def films_of(folder):
    return json.loads((folder / "films.json").read_text())


def test_a_kept_episode_is_printed_with_its_numbers_and_messages(tmp_path, stream):
    run(visualize, visualize_config(episodes=1), tmp_path)

    recording = Recording.load(tmp_path / "episode-00000.json")
    printed = stream.getvalue()
    success = recording.info["success"]
    assert (
        f"episode 0: random on Recall-v0, seed {recording.seed}: return {success:g}, length 6, success {success:g}\n"
        in printed
    )
    assert f"written: {tmp_path}/episode-00000.html\n" in printed
    # Four blank steps, and the observation after the answer; "which cue?" is the third.
    table = [line.strip("│ ") for line in printed.splitlines() if line.startswith("│")]
    assert table[0].startswith("(no message)")
    assert table[0].endswith("5")
    assert table[1].startswith("the cue is ")
    assert table[1].endswith("1")
    assert len(table) == 2


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
    assert existing == [f"{tmp_path}/episode-0000{number}.json" for number in (0, 1)]
    assert [line for line in lines if line.startswith("written: ")] == [
        f"written: {tmp_path}/episode-00002.html"
    ]
    assert len(films_of(tmp_path)) == 3


def test_a_replay_films_each_recording_once(tmp_path, stream):
    recorded = tmp_path / "kept"
    run(visualize, visualize_config(), recorded)

    # The folder has the second recording too.
    run(
        replay,
        replay_config(recordings=f"{recorded},{recorded}/episode-00001.json"),
        tmp_path / "replayed",
    )

    films = films_of(tmp_path / "replayed")
    assert list(films) == ["episode-00000", "episode-00001"]
    for name in films:
        page = (tmp_path / "replayed" / f"{name}.html").read_text()
        assert f"<title>{name} of Recall-v0</title>" in page


@pytest.fixture
def show(tmp_path, stream, monkeypatch):
    """Shows episodes on the terminal while keys are typed; gives (title, step, state) of each
    view.
    """

    def shown(*keys, episodes=1):
        typed = iter(keys)
        monkeypatch.setattr(keyboard, "is_terminal", lambda: True)
        monkeypatch.setattr(
            keyboard, "single_keys", lambda: contextlib.nullcontext(lambda seconds: next(typed))
        )
        # Slow enough that no step comes by itself.
        config = visualize_config(episodes=episodes, live=True, seconds_per_step=1000.0, seed=3)
        run(visualize, config, tmp_path)
        assert list(typed) == [], "all keys were asked for"
        views = []
        for text in stream.getvalue().split("\x1b[H")[1:]:
            title = re.match(r"episode \d", text)
            step = re.search(r"│ step +(\d+)", text)
            state = re.search(r"^(.*?)   Space pause", text, re.MULTILINE)
            if title and step and state:
                views.append((title[0], int(step[1]), state[1]))
        return views

    return shown


def steps_of(views):
    return [step for _, step, _ in views]


def states_of(views):
    return [state for *_, state in views]


def test_plus_and_minus_change_the_speed(show):
    views = show("+", "+", "-", "-", "right", "q")

    assert states_of(views)[:5] == [
        "0.001 steps/s",
        "1 steps/s",
        "2 steps/s",
        "1 steps/s",
        # Nothing is slower.
        "1 steps/s",
    ]


def test_space_pauses_until_it_is_pressed_again(show):
    views = show(" ", None, " ", "right", "q")

    assert states_of(views)[:4] == ["0.001 steps/s", "paused", "paused", "0.001 steps/s"]
    assert steps_of(views)[:4] == [0, 0, 0, 0]


def test_right_plays_one_step(show):
    assert steps_of(show("right", "right", "q")) == [0, 1, 2]


def test_n_plays_to_the_next_reward_or_the_end(show):
    # No step of this episode before the last pays.
    assert steps_of(show("n", "right")) == [0, 6]


def test_e_plays_to_the_end_and_the_next_episode(show):
    # At the end of an episode a key leads on.
    views = show("e", "right", "right", "q", episodes=2)

    assert [(title, step) for title, step, _ in views] == [
        ("episode 0", 0),
        ("episode 0", 6),
        ("episode 1", 0),
        ("episode 1", 1),
    ]


def test_another_key_does_nothing(show):
    assert steps_of(show("x", "right", "q")) == [0, 0, 1]


def test_q_keeps_what_was_played_and_shows_no_more_episodes(show, tmp_path):
    show("right", "right", "q", episodes=2)

    recording = Recording.load(tmp_path / "episode-00000.json")
    # The third action was shown, but not played.
    assert len(recording.actions) == 2
    assert recording.info["length"] == 2
    assert films_of(tmp_path)["episode-00000"]["steps"] == 3
    assert not (tmp_path / "episode-00001.json").exists()


def test_q_before_the_first_step_keeps_an_episode_without_actions(show, tmp_path):
    show("q")

    assert len(Recording.load(tmp_path / "episode-00000.json").actions) == 0
    assert films_of(tmp_path)["episode-00000"]["steps"] == 1


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
    film_recording = watching.film_recording
    seeds = []

    def film_and_stop(*arguments):
        film = film_recording(*arguments)
        if not seeds:
            os.kill(os.getpid(), signal.SIGTERM)
        seeds.append(film.seed)
        return film

    monkeypatch.setattr(watching, "film_recording", film_and_stop)
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


def replay_config(**changes):
    return load_config("replay", "", {"forms.ttyrec": False, **changes})


@pytest.mark.slow
def test_a_stopped_replay_goes_on_after_the_last_film(evaluation, tmp_path, monkeypatch):
    seeds = stop_after_first_film(monkeypatch)
    config = replay_config(evaluation=str(evaluation), episodes="all")

    assert run(replay, config, tmp_path / "r") == EXIT_CODE
    assert run(replay, config, tmp_path / "r") is None

    assert len(seeds) == len(set(seeds)) == 3
    assert len(list((tmp_path / "r").glob("*.html"))) == 3


@pytest.fixture
def replayed(evaluation, tmp_path, monkeypatch):
    """A config of a replay that has ended, its folder, and the seeds of the films that are made
    from now on.
    """
    config = replay_config(evaluation=str(evaluation), episodes="all")
    run(replay, config, tmp_path / "r")
    seeds = []
    film_recording = watching.film_recording

    def film(*arguments):
        seeds.append(arguments[0].seed)
        return film_recording(*arguments)

    monkeypatch.setattr(watching, "film_recording", film)
    return config, tmp_path / "r", seeds


@pytest.mark.slow
def test_films_that_exist_are_not_made_again(replayed):
    config, folder, seeds = replayed

    assert run(replay, config, folder) is None

    assert seeds == []


@pytest.mark.slow
def test_films_in_other_forms_are_made_anew(replayed):
    config, folder, seeds = replayed

    config.forms.gif = True
    config.forms.stop = 3
    assert run(replay, config, folder) is None

    assert len(seeds) == 3


@pytest.mark.slow
def test_films_of_a_retrained_reward_are_made_again(replayed, monkeypatch):
    config, folder, seeds = replayed

    monkeypatch.setattr(evaluation_setup, "digests_of", lambda *_: {"reward": "another"})
    assert run(replay, config, folder) is None

    assert len(seeds) == 3


@pytest.mark.slow
@pytest.mark.parametrize("key", ["agent", "reward"])
def test_an_agent_or_reward_that_has_moved_is_named(key, evaluation, tmp_path):
    summary = json.loads((evaluation / evaluation_files.SUMMARY).read_text())
    if key == "agent":
        summary["plan"] |= {"policy": "/gone/agent", "checkpoint": 100}
    else:
        settings = {"step": 3, "normalise": True, "quantile": 0.5, "count_exponent": 3.0}
        summary["plan"]["reward"] = {"dir": "/gone/reward", **settings}
    rows = evaluation_files.read_rows(evaluation / evaluation_files.JOURNAL)
    evaluation_files.write_summary(evaluation, summary, rows)
    config = replay_config(evaluation=str(evaluation), episodes="1")
    line = rf"config.{key}.dir=None: .*/gone/{key}, which does not exist: give --config.{key}.dir=DIR, or --config.{key}.dir= "
    with pytest.raises(UserError, match=line):
        replay.check(config, tmp_path / "r")
    config[key].dir = ""
    assert run(replay, config, tmp_path / "r") is None
    assert (tmp_path / "r" / "episode-00001.html").exists()


def test_an_agent_reads_its_fields_only_in_its_game(tmp_path):
    """The instruction, which recordings leave out; an agent of another game is refused."""
    recorded = tmp_path / "kept"
    game = {"environment.name": "BabyAI-GoToLocal-v0", "episodes": 1}
    run(visualize, visualize_config(**game), recorded)
    untrained.write(tmp_path / "agent", "symbolic", {"environment.name": "BabyAI-GoToLocal-v0"})
    untrained.write(tmp_path / "other", "recall", {})

    run(
        replay,
        replay_config(recordings=str(recorded), **{"agent.dir": str(tmp_path / "agent")}),
        tmp_path / "r",
    )

    assert (tmp_path / "r" / "episode-00000.html").is_file()
    config = replay_config(recordings=str(recorded), **{"agent.dir": str(tmp_path / "other")})
    with pytest.raises(
        UserError, match=r"config\.agent\.dir='.*other': must be an agent that can play BabyAI"
    ):
        replay.check(config, tmp_path / "o")
