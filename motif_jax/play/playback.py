"""Shows an episode step by step, at the speed and with the pauses that keys ask for."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable

from motif_jax.core.interruption import Interruption
from motif_jax.play.watching import WatchedStep

HELP = "Space pause  Right step  +/- speed  n next reward  e end of episode  q quit"
SPEEDS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, math.inf)
# While it waits for a key, the terminal looks for a signal at least so often.
LOOK_SECONDS = 0.5
# On the way to the end so many steps pass between two that are drawn.
_FINISHING_STEPS = 50
# Tasks take so much or less for each step, which is no reward that anybody looks for.
_LEAST_REWARD = 0.015

Draw = Callable[[WatchedStep], None]
KeyOf = Callable[[float], str | None]


@dataclasses.dataclass
class Playback:
    """How the steps of one episode are shown; keys change it (`HELP`).

    Attributes:
      speed: steps a second; infinite: as fast as the episode is played.
      paused: the step that is shown stays until a key continues.
      skipping: nothing is drawn until the next reward.
      finishing: few steps are drawn until the end.
      quit: the rest of the episode, and later ones, are not shown.
    """

    speed: float
    paused: bool = False
    skipping: bool = False
    finishing: bool = False
    quit: bool = False

    def show(
        self, steps: Iterable[WatchedStep], draw: Draw, key_of: KeyOf, stop: Interruption
    ) -> None:
        """Draws steps until the last one, `quit` or a request to stop; `key_of(seconds)` waits so
        long for a key, None without one.
        """
        for watched in steps:
            if stop.requested:
                return
            # The last observation is always drawn.
            if self._is_hidden(watched) and watched.choice is not None:
                continue
            self.skipping = False
            draw(watched)
            self._wait(watched, draw, key_of, stop)
            if self.quit:
                return

    def _is_hidden(self, watched: WatchedStep) -> bool:
        if self.finishing and watched.step % _FINISHING_STEPS:
            return True
        return self.skipping and not _is_rewarded(watched)

    def _wait(self, watched: WatchedStep, draw: Draw, key_of: KeyOf, stop: Interruption) -> None:
        """Returns when the next step is due, or a key asks for it; the last step waits for any
        key.
        """
        # At an infinite speed the next step is due at once.
        due = time.monotonic() + 1 / self.speed
        at_end = watched.choice is None
        while not stop.requested:
            hold = (self.paused or at_end) and not self.finishing
            left = math.inf if hold else max(0.0, due - time.monotonic())
            key = key_of(min(left, LOOK_SECONDS))
            if key is None and left <= LOOK_SECONDS:
                return
            if key is not None and (self.press(key) or at_end):
                return
            # Again: a key has changed the state, or the terminal its size.
            draw(watched)

    def press(self, key: str) -> bool:
        """Does what a key says; returns whether the next step is to be played at once."""
        if key == " ":
            self.paused = not self.paused
        elif key in ("+", "=", "up"):
            self.speed = min((speed for speed in SPEEDS if speed > self.speed), default=self.speed)
        elif key in ("-", "down"):
            self.speed = max((speed for speed in SPEEDS if speed < self.speed), default=self.speed)
        elif key == "n":
            self.skipping = True
        elif key == "e":
            self.finishing = True
        elif key == "q":
            self.quit = True
        return key in ("right", ".", "n", "e", "q")


def _is_rewarded(watched: WatchedStep) -> bool:
    """Whether a step pays: by the intrinsic reward, or by the task where there is none."""
    if watched.reward is not None:
        return watched.intrinsic > 0
    return abs(watched.task_reward) > _LEAST_REWARD
