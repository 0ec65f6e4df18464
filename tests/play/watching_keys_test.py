"""Keys that people type while episodes are shown on a terminal."""

from __future__ import annotations

import contextlib
import re

import pytest

from motif_jax.envs.recording import Recording
from motif_jax.play import terminal, visualize
from tests.play.watched_stages import films_of, run, visualize_config


@pytest.fixture
def show(tmp_path, stream, monkeypatch):
    """Shows episodes on the terminal while keys are typed; gives (title, step, state) of each
    view.
    """

    def shown(*keys, episodes=1):
        typed = iter(keys)
        monkeypatch.setattr(terminal, "is_terminal", lambda: True)
        monkeypatch.setattr(
            terminal, "single_keys", lambda: contextlib.nullcontext(lambda seconds: next(typed))
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
