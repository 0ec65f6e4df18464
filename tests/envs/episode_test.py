"""What the player of episodes records of them."""

from __future__ import annotations

import numpy as np

from motif_jax.envs import episode, registry
from motif_jax.envs.episode import EpisodePlayer, fixed_actions
from motif_jax.envs.nethack.random_players import HABITS
from motif_jax.envs.spec import RUNNING


def test_an_episode_that_outgrew_its_arrays_is_recorded_whole(monkeypatch):
    environment = registry.make("NetHackScore-v1", max_episode_steps=40)
    fields = tuple(environment.spec.observation)
    monkeypatch.setattr(episode, "FIRST_CAPACITY", 3)
    small = EpisodePlayer(environment, fields)
    monkeypatch.undo()
    large = EpisodePlayer(environment, fields)

    for seed in (1, 2):
        grown, roomy = (
            vars(player.play(seed, HABITS["runner"].player(seed, environment.spec)))
            for player in (small, large)
        )
        assert len(grown["fields"]["message"]) > 3
        np.testing.assert_equal(grown, roomy)
    environment.close()


def test_fields_in_the_callers_arrays_are_kept_too():
    environment = registry.make("Recall-v0", delay=3)
    player = EpisodePlayer(environment, ["features", "sign_count"])
    actions = np.zeros(5, int)
    own = player.play(7, fixed_actions(actions))
    kept = {name: array.copy() for name, array in own.fields.items()}
    out = {
        name: np.zeros(array.shape, array.dtype)
        for name, array in environment.spec.observation.items()
    }

    for _ in player.transitions(7, fixed_actions(actions), out):
        pass

    np.testing.assert_equal(player.episode().fields, kept)
    assert len(kept["features"]) == len(own) + 1


def test_an_episode_whose_actions_ran_out_has_not_ended():
    environment = registry.make("NetHackScore-v1", max_episode_steps=40)
    player = EpisodePlayer(environment, ["blstats"])

    played = player.play(1, fixed_actions(np.zeros(2, int)))

    assert (played.end, len(played), len(played.fields["blstats"])) == (RUNNING, 2, 3)
    environment.close()
