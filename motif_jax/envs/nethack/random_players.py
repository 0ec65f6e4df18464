"""Random players that prefer some actions, so that together they see more of the game.

A uniformly random player mostly walks into walls and asks what to eat. A habit weights groups of
actions and may repeat the last action, which takes the hero through doors and down corridors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from motif_jax.core import seeds
from motif_jax.envs.episode import Choose
from motif_jax.envs.nethack.actions import EXTENDED_KEYS, TASK_KEYS
from motif_jax.envs.spec import EnvironmentSpec

# The group of each action of the tasks with 28 actions; tasks with 23 actions use the first 23.
GROUPS = (
    "more", *["walk"] * 8, *["run"] * 8, "up", "down", "wait", "kick", "eat", "search", "cast", "drink", "pray", "pick up",
    "pay",
)  # fmt: skip
# Steps whose random numbers are drawn at once, which is faster. Another number would change every
# habit's games.
_BLOCK = 1024


def has_habits(spec: EnvironmentSpec) -> bool:
    """Whether habits can play: the environment has the actions of the NetHack tasks."""
    return tuple(spec.action_keys) in (TASK_KEYS, EXTENDED_KEYS)


@dataclasses.dataclass(frozen=True)
class Habit:
    """A random player: action group -> weight of each of its actions (1 by default), and the
    probability of a repetition.
    """

    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    repeat: float = 0.0

    def probabilities(self, num_actions: int) -> np.ndarray:
        """Probabilities of the 23 or 28 actions at a step that does not repeat the last action:
        float64 [num_actions].
        """
        weights = [self.weights.get(group, 1.0) for group in GROUPS[:num_actions]]
        return np.array(weights) / sum(weights)

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        """Returns a policy for the episode `seed`, if `has_habits(spec)`."""
        actions = self.actions(seed, spec.num_actions)
        return lambda _: next(actions)

    def actions(self, seed: int, num_actions: int = len(TASK_KEYS)) -> Iterator[int]:
        """Yields the actions of the episode `seed` endlessly; they depend only on seed and step."""
        bounds = self.probabilities(num_actions).cumsum()
        bounds[-1] = 1.0  # where rounding leaves less
        last = 0
        block = 0
        while True:
            uniform = seeds.rng(seed, "habit", block).random((2, _BLOCK))
            # The inverse of the cumulative probabilities at uniform numbers.
            drawn = np.searchsorted(bounds, uniform[0], side="right").tolist()
            repeats = (uniform[1] < self.repeat).tolist()
            if block == 0:
                repeats[0] = False  # nothing comes before
            for action, is_repeat in zip(drawn, repeats):
                last = last if is_repeat else action
                yield last
            block += 1


# Down-weighted in every habit but `uniform`: these actions usually cost no turn, or anger a god.
_RARE = {"cast": 0.3, "drink": 0.3, "pray": 0.02, "pay": 0.1}
# Names for config.mixture of collect.
HABITS: Mapping[str, Habit] = {
    "uniform": Habit(),
    "walker": Habit(_RARE | {"walk": 6.0, "eat": 0.3, "up": 0.1}, repeat=0.5),
    "runner": Habit(
        _RARE | {"run": 6.0, "walk": 2.0, "down": 3.0, "eat": 0.3, "up": 0.1}, repeat=0.3
    ),
    "kicker": Habit(_RARE | {"kick": 8.0, "walk": 3.0, "eat": 0.3, "up": 0.1}),
    "searcher": Habit(
        _RARE | {"search": 20.0, "walk": 3.0, "run": 2.0, "eat": 0.3, "up": 0.1}, repeat=0.4
    ),
    "eater": Habit(_RARE | {"eat": 6.0, "walk": 3.0, "run": 2.0}),
    "descender": Habit(
        _RARE | {"down": 6.0, "walk": 5.0, "run": 3.0, "eat": 0.3, "up": 0.0}, repeat=0.2
    ),
}
