from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.episode import given_actions
from motif_jax.envs.spec import Frame
from motif_jax.play import watching
from motif_jax.play.episodes import PlaySettings, play_episodes
from motif_jax.play.policies import BotPolicy, RandomPolicy
from motif_jax.play.ratings import EpisodeRater
from motif_jax.rl.actors.rerecording import record_actions
from tests.made_up_films import MadeUpPolicy, MadeUpRater
from tests.play.told import lines
from tests.recorded_outputs import assert_matches_packed_recording
from tests.toys import Flyer

OPTIONS = {"max_episode_steps": 120}


@pytest.mark.parametrize("policy", [RandomPolicy(), MadeUpPolicy()], ids=["random", "batched"])
def test_watching_shows_the_episode_that_evaluation_plays(policy):
    (record,) = play_episodes("NetHackScore-v1", OPTIONS, [11], policy, PlaySettings(workers=1, lanes=2))
    environment = registry.make("NetHackScore-v1", **OPTIONS, fields=("tty_chars", "tty_colors"))
    maker = watching.FilmMaker("NetHackScore-v1", OPTIONS, 11, environment.spec, "t")
    chooser = watching.policy_actions(policy, 11, environment.spec)
    for sight in watching.watch(environment, 11, chooser, MadeUpRater()):
        maker.add(sight)
    live = maker.film(environment.episode_info())
    np.testing.assert_array_equal(live.actions, record.actions)
    np.testing.assert_array_equal(live.task_rewards[1:], record.rewards)
    assert (live.info, live.end) == (record.info, record.end)
    paid = MadeUpRater()
    rated = EpisodeRater(lambda texts: np.float32([paid(text).paid for text in texts]), 3.0).rate(record)
    np.testing.assert_allclose(live.intrinsic[:-1], rated.discounted, rtol=1e-6)
    assert live.intrinsic[-1] == 0, "the last observation is never paid"
    np.testing.assert_array_equal(live.text_count[:-1], record.text_count)
    assert live.texts[: len(record.texts)] == [t.tobytes() for t in record.texts]


FILMS = {
    "a game": ("NetHackScore-v1", OPTIONS, MadeUpPolicy(), False),
    "a greedy game": ("NetHackScore-v1", OPTIONS, MadeUpPolicy(), True),
    "a bot": (
        "BabyAI-GoToLocal-v0",
        {"max_episode_steps": 30, "fields": ("bot_action",)},
        BotPolicy(),
        False,
    ),
    "a corridor": ("tests.toys:Corridor", {}, Flyer(None), False),
    "a screenless game": ("Recall-v0", {"delay": 3}, RandomPolicy(), False),
}


def test_films_and_replays_are_those_that_were_recorded(record):
    parts = {}
    for name, (task, options, policy, greedy) in FILMS.items():
        given = watching.with_screen(task, options, ("glyphs",) if task == "NetHackScore-v1" else ())
        environment = registry.make(task, **given)
        maker = watching.FilmMaker(task, given, 5, environment.spec, "title")
        choose = watching.policy_actions(policy, 5, environment.spec, greedy)
        for sight in watching.watch(environment, 5, choose, MadeUpRater()):
            maker.add(sight)
        film = maker.film(environment.episode_info())
        environment.close()
        recording = record_actions(task, options, 5, film.actions)
        known = None if policy.in_workers else policy
        again = watching.film_recording(recording, "title", known, lambda spec: MadeUpRater())
        parts |= {name: lines(vars(film)), f"{name} again": lines(vars(again))}
    assert_matches_packed_recording("watched_films", parts, record)


def test_pictures_of_a_film_are_made_smaller():
    nothing = np.zeros((1, 1), np.uint8)
    frame = Frame(nothing, nothing, None, {}, picture=np.full((480, 640, 3), 7, np.uint8))
    maker = watching.FilmMaker("t", {}, 1, registry.spec("Recall-v0"), "title")
    maker.add(watching.WatchedStep(0, {}, frame, None, 0, None, 0.0, 0.5, None, 2))
    film = maker.film({})
    [picture] = [Image.open(io.BytesIO(picture)) for picture in film.pictures]
    assert (picture.format, picture.size, picture.getpixel((0, 0))) == ("PNG", (320, 240), (7, 7, 7))
    assert (film.chars.shape, film.colors.shape, film.cursor.tolist()) == ((1, 1, 1), (1, 1, 1), [[-1, -1]])


def test_a_policy_that_runs_out_ends_the_episode_there(monkeypatch):
    environment = registry.make("Recall-v0", delay=20)
    monkeypatch.setattr(RandomPolicy, "player", lambda *_: given_actions(np.array([0, 1, 1])))
    chooser = watching.policy_actions(RandomPolicy(), 4, environment.spec)
    sights = list(watching.watch(environment, 4, chooser))
    assert [None if sight.choice is None else sight.choice.action for sight in sights] == [0, 1, 1, None]
    assert sights[-1].end == 0


@pytest.mark.parametrize("change", [{"info": {"return": 7.0}}, {"digest": "0" * 32}], ids=["info", "digest"])
def test_a_replay_that_differs_is_refused(change):
    recording = record_actions("Recall-v0", {"delay": 3}, 4, np.array([0, 1, 2, 3, 1]))
    changed = dataclasses.replace(recording, **change)
    with pytest.raises(UserError, match="not the episode that was recorded"):
        watching.film_recording(changed, "recall")
