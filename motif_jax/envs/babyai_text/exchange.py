"""Shows another episode's mission, or its prompts, played with the same actions, instead of the
episode's own.

The return of an agent that reads falls; the rest of its return does not depend on the mission.
"""

from __future__ import annotations

from typing import Any

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.envs.babyai_text.changes import OTHER_EPISODE
from motif_jax.envs.spec import RUNNING, empty_observation

MAX_TRIES = 100


class Exchange:
    """Plays episodes of `other`, a `BabyAIText` of the same level and options; `prompts`: replaces
    whole prompts.
    """

    def __init__(self, change: str, other: Any) -> None:
        self.prompts = change == OTHER_EPISODE
        self.other = other
        # The other episode writes its observations here; only its texts are shown.
        self._unread = empty_observation(other.spec)

    def begin(self, seed: int, goal: str) -> None:
        """Begins another episode for the episode `seed`. Raises UserError: no other episode has a
        goal besides `goal`.
        """
        self._seed = seed
        self._number = 0
        self._reset()
        while not self.prompts and self.other.goal == goal:
            if self._number == MAX_TRIES:
                raise UserError(
                    f"config.environment.babyai_text.change=other_mission: every mission of the level is {goal!r}"
                )
            self._reset()

    def add(self, played: int, name: str) -> None:
        """Plays the action in the other episode, where its prompts are shown; after its end a
        further one begins.
        """
        if not self.prompts:
            return
        _, end = self.other.play(played, name, self._unread)
        if end != RUNNING:
            self._reset()

    def _reset(self) -> None:
        # A function of the episode's seed, so that the exchanged episode is the same when it is
        # played again.
        self.other.reset(seeds.derive(self._seed, "exchanged", self._number), self._unread)
        self._number += 1
