from __future__ import annotations

import contextlib
import dataclasses
import io

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.episode import EpisodePlayer, PlayedEpisode, fixed_actions, play
from motif_jax.envs.recording import record_actions
from motif_jax.envs.spec import TERMINATED, Frame
from motif_jax.play import watching
from motif_jax.play.ratings import EpisodeRater, LiveRater, RatingReward
from motif_jax.rl import intrinsic
from motif_jax.rl.actors.episodes import PlaySettings, play_episodes
from motif_jax.rl.actors.policies import BotPolicy, RandomPolicy
from motif_jax.rl.config import AgentReward
from motif_jax.rl.intrinsic import RewardKind
from tests.made_up_films import MadeUpPolicy, MadeUpRater
from tests.toys import Flyer

pytestmark = pytest.mark.slow

OPTIONS = {"max_episode_steps": 120}


def film_of(task, options, policy, seed, greedy=False, fields=(), rater=None):
    """A film of an episode that is played live, rated by `rater`, or by a made-up reward."""
    screening = watching.Screening(
        task,
        options,
        seed,
        "title",
        lambda spec: watching.policy_actions(policy, seed, spec, greedy),
        lambda spec: rater or MadeUpRater(),
        fields,
    )
    with contextlib.closing(screening):
        for _ in screening.steps():
            pass
        return screening.film()


@pytest.mark.parametrize("policy", [RandomPolicy(), MadeUpPolicy()], ids=["random", "batched"])
def test_watching_shows_the_episode_that_evaluation_plays(policy):
    settings = PlaySettings(workers=1, lanes=2)
    (episode,) = play_episodes("NetHackScore-v1", OPTIONS, [11], policy, settings)

    film = film_of("NetHackScore-v1", OPTIONS, policy, 11)

    np.testing.assert_array_equal(film.actions, episode.actions)
    np.testing.assert_array_equal(film.task_rewards[1:], episode.rewards)
    assert (film.info, film.end) == (episode.info, episode.end)
    np.testing.assert_array_equal(film.text_count[:-1], episode.text_count)
    assert film.texts[: len(episode.texts)] == [text.tobytes() for text in episode.texts]


@pytest.mark.parametrize("policy", [RandomPolicy(), MadeUpPolicy()], ids=["random", "batched"])
def test_watching_pays_what_evaluation_does_and_nothing_at_the_end(policy):
    settings = PlaySettings(workers=1, lanes=2)
    (episode,) = play_episodes("NetHackScore-v1", OPTIONS, [11], policy, settings)
    reward = MadeUpRater()
    rater = EpisodeRater(lambda texts: np.float32([reward(text).paid for text in texts]), 3.0)

    film = film_of("NetHackScore-v1", OPTIONS, policy, 11)

    np.testing.assert_allclose(film.intrinsic[:-1], rater.rate(episode).discounted, rtol=1e-6)
    assert film.intrinsic[-1] == 0


class Upright(RewardKind):
    """Pays 1 for every observation of a pole, which it reads in place of a text."""

    fields = ("observation",)
    in_step = staticmethod(lambda params, fields: jnp.ones(fields["observation"].shape[:2]))

    @classmethod
    def make(cls, setup):
        return cls()


def test_watching_pays_what_evaluation_does_without_a_text(monkeypatch):
    monkeypatch.setattr(intrinsic, "kind_of", lambda section: Upright)
    pole = ("gym:CartPole-v1", {"text": ""})
    spec = registry.spec(pole[0], **pole[1])
    reward = RatingReward(AgentReward())
    settings = PlaySettings(workers=1, lanes=2, keep_fields=Upright.fields)
    (episode,) = play_episodes(*pole, [11], RandomPolicy(), settings)

    film = film_of(*pole, RandomPolicy(), 11, rater=LiveRater(reward, spec))

    rated = reward.rater(spec).rate(episode)
    assert rated.discounted.sum() > 5
    np.testing.assert_array_equal(film.intrinsic[: len(rated.discounted)], rated.discounted)
    assert film.intrinsic.sum() == rated.discounted.sum()


LEVEL = "BabyAI-GoToLocal-v0"
FILMS = {
    "game": ("NetHackScore-v1", OPTIONS, MadeUpPolicy()),
    "bot": (LEVEL, {"max_episode_steps": 30, "fields": ("bot_action",)}, BotPolicy()),
    "corridor": ("tests.toys:Corridor", {}, Flyer(None)),
    "no screen": ("Recall-v0", {"delay": 3}, RandomPolicy()),
}


@pytest.mark.parametrize("name", FILMS)
def test_a_replay_shows_the_film_again(name):
    task, options, policy = FILMS[name]
    film = film_of(task, options, policy, 5)
    recording = record_actions(task, options, 5, film.actions)

    network = None if policy.in_workers else policy
    again = watching.film_recording(recording, "title", network, lambda spec: MadeUpRater())

    different = set()
    if policy.in_workers:
        # Only a network's probabilities are computed again.
        different.add("probabilities")
        assert again.probabilities is None
    for field, array in vars(film).items():
        if field not in different:
            np.testing.assert_equal(vars(again)[field], array, field)


def test_a_film_of_the_game_shows_its_screen_and_numbers():
    film = film_of("NetHackScore-v1", OPTIONS, MadeUpPolicy(), 5)

    assert film.chars.shape == film.colors.shape == (121, 24, 80)
    shown = watching.with_screen("NetHackScore-v1", OPTIONS)
    assert shown == {"max_episode_steps": 120, "fields": ("tty_chars", "tty_colors")}
    environment = registry.make("NetHackScore-v1", **shown)
    for step, transition in enumerate(play(environment, 5, fixed_actions(film.actions))):
        np.testing.assert_array_equal(film.chars[step], transition.observation["tty_chars"])
        np.testing.assert_array_equal(film.colors[step], transition.observation["tty_colors"])
    environment.close()
    # At the start nothing hides the hero.
    row, column = film.cursor[0]
    assert film.chars[0, row, column] == ord("@")
    assert film.vitals["turn"][0] == 1
    assert film.vitals["turn"][-1] == film.info["turns"]
    assert (np.diff(film.vitals["turn"]) >= 0).all()
    assert (film.vitals["hp"] <= film.vitals["max hp"]).all()


def test_a_film_has_the_values_and_probabilities_of_a_network():
    film = film_of("NetHackScore-v1", OPTIONS, MadeUpPolicy(), 5)

    # Of the made-up policy: the sine of the step, and one action that is e^2 times as likely as the
    # others.
    np.testing.assert_allclose(film.values, np.sin(np.arange(1, 121) / 9), rtol=1e-5)
    likely = np.exp(2) / (np.exp(2) + 22)
    np.testing.assert_allclose(film.probabilities.max(-1), likely, rtol=1e-5)
    np.testing.assert_allclose(film.probabilities.sum(-1), 1.0, rtol=1e-5)


def test_a_greedy_film_takes_the_most_likely_actions():
    film = film_of("NetHackScore-v1", OPTIONS, MadeUpPolicy(), 5, greedy=True)

    np.testing.assert_array_equal(film.actions, film.probabilities.argmax(-1))


def test_a_bots_film_is_certain_and_reaches_the_goal():
    film = film_of(*FILMS["bot"], 5)

    np.testing.assert_array_equal(film.probabilities, np.eye(6)[film.actions])
    assert (film.info["success"], film.end) == (1.0, TERMINATED)
    assert film.notes["mission"] == ["go to a grey key"] * len(film)
    assert len(film.pictures) == len(film)
    assert film.values is None


def test_a_film_of_a_corridor_shows_the_cells():
    film = film_of(*FILMS["corridor"], 5)

    lines = [bytes(row).decode() for (row,) in film.chars]
    assert lines == ["@....$", ".@...$", "..@..$", "...@.$", "....@$", ".....$"]
    assert film.cursor.tolist() == [[0, column] for column in range(6)]
    assert film.vitals["cell"].tolist() == [0, 1, 2, 3, 4, 5]
    assert film.task_rewards.tolist() == [0, 0, 0, 0, 0, 1]


def test_actions_that_an_environment_does_not_allow_have_no_probability():
    film = film_of(*FILMS["corridor"], 5)

    left, right, wait, jump, fly = film.probabilities.T
    assert (jump == 0).all()
    assert (fly == 0).all()
    # In the first cell there is no left.
    assert left[0] == 0
    np.testing.assert_allclose(right[0], np.exp(2) / (np.exp(2) + 1), rtol=1e-5)
    np.testing.assert_allclose(right[1:], np.exp(2) / (np.exp(2) + 2), rtol=1e-5)
    np.testing.assert_allclose(wait[1:], left[1:])


def test_an_environment_without_text_has_one_empty_text():
    film = film_of(*FILMS["corridor"], 5)

    assert film.texts == [b""]
    assert film.text_count.tolist() == [0] * 6
    assert film.paid.tolist() == [0]
    assert film.intrinsic.tolist() == [0] * 6


def test_a_film_without_a_screen_has_empty_screens():
    film = film_of(*FILMS["no screen"], 5)

    assert film.chars.shape == film.colors.shape == (6, 0, 0)
    assert film.cursor.tolist() == [[-1, -1]] * 6
    assert [text.rstrip(b"\0") for text in film.texts] == [b"the cue is 3", b"", b"which cue?"]
    assert film.text_index.tolist() == [0, 1, 1, 1, 2, 1]
    assert film.text_count.tolist() == [1, 1, 2, 3, 1, 4]


def test_pictures_of_a_film_are_made_smaller():
    nothing = np.zeros((1, 1), np.uint8)
    frame = Frame(nothing, nothing, None, {}, picture=np.full((480, 640, 3), 7, np.uint8))
    maker = watching.FilmMaker("t", registry.spec("Recall-v0"), "title")
    maker.add(watching.WatchedStep(0, {}, frame, None, 0, None, 0.0, 0.5, None, 2))
    film = maker.film(PlayedEpisode(0, 1, np.zeros(0, np.int32), np.zeros(0, np.float32), 2, {}))
    [picture] = [Image.open(io.BytesIO(picture)) for picture in film.pictures]
    assert (picture.format, picture.size, picture.getpixel((0, 0))) == (
        "PNG",
        (320, 240),
        (7, 7, 7),
    )
    assert (film.chars.shape, film.colors.shape, film.cursor.tolist()) == (
        (1, 1, 1),
        (1, 1, 1),
        [[-1, -1]],
    )


def test_a_policy_that_runs_out_ends_the_episode_there(monkeypatch):
    environment = registry.make("Recall-v0", delay=20)
    monkeypatch.setattr(RandomPolicy, "player", lambda *_: fixed_actions(np.array([0, 1, 1])))
    chooser = watching.policy_actions(RandomPolicy(), 4, environment.spec)

    steps = list(watching.watch(EpisodePlayer(environment), 4, chooser))

    assert [step.choice.action for step in steps[:-1]] == [0, 1, 1]
    assert steps[-1].choice is None
    assert steps[-1].end == 0


@pytest.mark.parametrize(
    "change", [{"info": {"return": 7.0}}, {"digest": "0" * 32}], ids=["info", "digest"]
)
def test_a_replay_that_differs_is_refused(change):
    recording = record_actions("Recall-v0", {"delay": 3}, 4, np.array([0, 1, 2, 3, 1]))
    changed = dataclasses.replace(recording, **change)
    with pytest.raises(UserError, match="not the episode that was recorded"):
        watching.film_recording(changed, "recall")
