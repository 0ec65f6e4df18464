"""A film of a real game with a made-up reward, for tests of players, movies and ttyrecs."""

from __future__ import annotations

import functools

import numpy as np

from motif_jax.envs import registry
from motif_jax.envs.episode import EpisodePlayer
from motif_jax.play import watching
from motif_jax.play.ratings import TextReward
from motif_jax.rl.actors.policies import RandomPolicy


class MadeUpRater:
    """Pays for what begins with certain letters; depends on the text alone, and pays nothing
    without one.
    """

    pays_first = True

    def discount(
        self, text: np.ndarray | None, reward: TextReward, count: int, visits: object
    ) -> float:
        return reward.paid / count**3.0

    def __call__(self, text: np.ndarray | None, observation: object = None) -> TextReward:
        if text is None:
            return TextReward(0.0, 0.0, 0.0)
        raw = float(text[:20].astype(np.int64).sum() % 97) / 97
        normalised = 4 * raw - 2
        return TextReward(raw, normalised, normalised if normalised > 0.5 else 0.0)


class MadeUpPolicy:
    """A batch policy without a network: prefers an action that depends on the status line and the
    steps so far.
    """

    name = "made up"
    in_workers = False

    def initial_state(self, batch_size: int) -> np.ndarray:
        return np.zeros(batch_size, np.int64)

    def act(self, observation, first, state):
        state = np.where(first, 0, state) + 1
        logits = np.zeros((len(first), 23), np.float32)
        favourite = (np.asarray(observation["blstats"], np.int64).sum(-1) + state) % 23
        logits[np.arange(len(first)), favourite] = 2.0
        return logits, np.sin(state / 9).astype(np.float32), state


@functools.cache
def film(steps: int = 150, seed: int = 3, screen: bool = True) -> watching.Film:
    """A random game filmed with the made-up reward and policy."""
    fields = {"fields": ("tty_chars", "tty_colors")} if screen else {}
    environment = registry.make("NetHackScore-v1", max_episode_steps=steps, **fields)
    choose = RandomPolicy().player(seed, environment.spec)
    actions = [choose({}) for _ in range(steps)]
    maker = watching.FilmMaker(
        "NetHackScore-v1",
        environment.spec,
        "A <b>made-up</b> film",
    )
    chooser = watching.recorded_actions(np.array(actions), MadeUpPolicy(), environment.spec)
    player = EpisodePlayer(environment)
    for sight in watching.watch(player, seed, chooser, MadeUpRater()):
        maker.add(sight)
    return maker.film(player.episode())


@functools.cache
def grid_film(level: str = "BabyAI-MixedTrainLocal-v0", seed: int = 5) -> watching.Film:
    """A random player in a grid world, with its probabilities."""
    options = watching.with_screen(level, {"kind": "open", "max_episode_steps": 30})
    environment = registry.make(level, **options)
    player = EpisodePlayer(environment)
    maker = watching.FilmMaker(level, environment.spec, "A film of a grid")
    chooser = watching.policy_actions(RandomPolicy(), seed, environment.spec)
    for sight in watching.watch(player, seed, chooser):
        maker.add(sight)
    return maker.film(player.episode())
