"""The text of the observation that ends an episode: collected, rated and filmed, but not in
NetHack.
"""

from __future__ import annotations

import types

import gymnasium
import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.episode import EpisodePlayer
from motif_jax.motif import sampling
from motif_jax.play import watching
from motif_jax.play.ratings import EpisodeRater, TextReward
from motif_jax.rl.actors import policies
from motif_jax.rl.actors.episodes import EpisodeJob


class Gate(gymnasium.Env):
    """Three steps; the last one says that the gate opens."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.left = 3
        return 0, {"text": "You wait."}

    def step(self, action):
        self.left -= 1
        return 1, 0.0, not self.left, False, {"text": "You wait." if self.left else "门开了！"}


gymnasium.register("LastTextGate-v0", entry_point=Gate)
NAME = "gym:LastTextGate-v0"
GATE = "门开了！".encode()


def played(**options):
    environment = registry.make(NAME, text="info:text", **options)
    choose = policies.RandomPolicy().player(5, environment.spec)
    return EpisodePlayer(environment, ["observation"]).play(5, choose)


def worth(texts):
    return np.array([len(text.tobytes().rstrip(b"\0")) for text in texts], np.float32)


def test_an_episode_is_rated_with_its_last_text():
    record = played()
    assert len(record) == 3
    assert record.texts[record.text_index[-1]].tobytes().rstrip(b"\0") == GATE
    assert record.text_count.tolist() == [1, 2, 3, 1]
    assert len(record.fields["observation"]) == 4
    rated = EpisodeRater(worth, 1.0).rate(record)
    np.testing.assert_allclose(rated.discounted, [9, 9 / 2, 9 / 3, len(GATE)])


def test_an_episode_is_rated_without_its_first_text_where_steps_are_paid_for_what_they_caused():
    rated = EpisodeRater(worth, 1.0, pay="caused").rate(played())
    np.testing.assert_allclose(rated.discounted, [0, 9 / 2, 9 / 3, len(GATE)])


def test_the_last_text_can_be_left_out():
    record = played(last_text=False)
    assert record.text_count.tolist() == [1, 2, 3]
    assert len(record.texts) == 1


@pytest.mark.parametrize("length", [1, 2])
def test_the_last_text_is_collected(length, tmp_path):
    plan = sampling.SamplingPlan(
        NAME, {"text": "info:text"}, ("message",), 0, length, 1.0, str(tmp_path), text="caption"
    )
    environment = registry.make(NAME, text="info:text")
    player = EpisodePlayer(environment, plan.kept_fields)
    episode = player.play(1, policies.RandomPolicy().player(1, environment.spec))
    count, steps = sampling.write_chunk(plan, EpisodeJob(0, 1), episode)
    assert (count, steps) == (4 // length, 3)
    texts = {
        bytes(row).rstrip(b"\0")
        for row in sampling.chunks.load(tmp_path, 0, count)["data/message"][:, -1]
    }
    assert length == 2 or GATE in texts


class WorthRater:
    """Pays what a text is worth, divided by its count."""

    pays_first = True

    def __call__(self, text, observation):
        return TextReward(*[float(worth([text])[0])] * 3)

    def discount(self, text, reward, count, visits):
        return reward.paid / count


def test_a_film_shows_what_it_paid():
    environment = registry.make(NAME, text="info:text")
    choose = lambda observation, step: watching.WatchedAction(0)  # noqa: E731
    sights = list(watching.watch(EpisodePlayer(environment), 0, choose, WorthRater()))
    assert [sight.intrinsic for sight in sights] == [9, 9 / 2, 9 / 3, len(GATE)]


def test_nethack_keeps_to_the_published_systems():
    assert not registry.spec("NetHackScore-v1").last_text
    assert not registry.spec("NetHackScoreExtendedActions-v1").last_text
    for name in ("MiniGrid-DoorKey-5x5-v0", "MiniHack-Room-5x5-v0", "Recall-v0"):
        assert registry.spec(name).last_text


def test_the_config_decides_for_every_environment():
    section = {"name": "NetHackScore-v1", "last_text": True}
    assert registry.spec("NetHackScore-v1", **registry.options_of(section)).last_text
    assert (
        registry.options_of(types.MappingProxyType({"name": "Recall-v0", "last_text": None})) == {}
    )
