"""Random players with habits: each prefers some actions, so that together they see more of the game.

A player that draws all actions alike mostly walks into walls and asks what to eat. A habit weighs groups of
actions and may repeat the last action, which takes the hero through doors and down corridors. No network, no
knowledge of the screen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from motif_jax.envs.episode import Choose, given_actions
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.support import seeds

# The actions of the NetHack tasks in their order, by the key that each sends, in groups that habits weigh.
ACTION_GROUPS: tuple[tuple[str, int], ...] = (
    ("more", 1),
    ("walk", 8),
    ("run", 8),
    ("up", 1),
    ("down", 1),
    ("wait", 1),
    ("kick", 1),
    ("eat", 1),
    ("search", 1),
)
NUM_ACTIONS = sum(count for _, count in ACTION_GROUPS)
_BLOCK = 1024


@dataclasses.dataclass(frozen=True)
class Habit:
    """A random player.

    Attributes:
      weights: action group -> weight of each of its actions, 1 where it is not named.
      repeat: probability of taking the last action again.
    """

    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    repeat: float = 0.0

    def probabilities(self) -> np.ndarray:
        """Probability of each action when the last one is not repeated: float64 [NUM_ACTIONS]."""
        weights = [self.weights.get(group, 1.0) for group, count in ACTION_GROUPS for _ in range(count)]
        return np.array(weights) / sum(weights)

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        """Returns what presses the keys of the episode `seed`.

        Raises:
          ValueError: the environment has other actions than the NetHack tasks.
        """
        if spec.num_actions != NUM_ACTIONS:
            raise ValueError(
                f"habits are made for {NUM_ACTIONS} actions, this environment has {spec.num_actions}"
            )
        actions = self.actions(seed)
        return lambda _: next(actions)

    def actions(self, seed: int) -> Iterator[int]:
        """Yields the actions of the episode `seed` without end; they depend on seed and step alone."""
        bounds = self.probabilities().cumsum()
        bounds[-1] = 1.0
        last, block = 0, 0
        while True:
            uniform = seeds.rng(seed, "habit", block).random((2, _BLOCK))
            drawn = np.searchsorted(bounds, uniform[0], side="right").tolist()
            again = (uniform[1] < self.repeat).tolist()
            if block == 0:
                again[0] = False
            for action, repeated in zip(drawn, again):
                last = last if repeated else action
                yield last
            block += 1


# Names that config.mixture of collect weighs.
HABITS: Mapping[str, Habit] = {
    "uniform": Habit(),
    "walker": Habit({"walk": 6.0, "eat": 0.3, "up": 0.1}, repeat=0.5),
    "runner": Habit({"run": 6.0, "walk": 2.0, "down": 3.0, "eat": 0.3, "up": 0.1}, repeat=0.3),
    "kicker": Habit({"kick": 8.0, "walk": 3.0, "eat": 0.3, "up": 0.1}),
    "searcher": Habit({"search": 20.0, "walk": 3.0, "run": 2.0, "eat": 0.3, "up": 0.1}, repeat=0.4),
    "eater": Habit({"eat": 6.0, "walk": 3.0, "run": 2.0}),
    "descender": Habit({"down": 6.0, "walk": 5.0, "run": 3.0, "eat": 0.3, "up": 0.0}, repeat=0.2),
}


@dataclasses.dataclass(frozen=True)
class GivenActions:
    """Plays an episode again, with the actions that were taken."""

    taken: np.ndarray

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        """Returns what presses the keys in `taken`, int [steps], and then ends the episode."""
        return given_actions(self.taken)
