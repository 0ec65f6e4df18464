"""Reward and end of a dialogue about a picture (Snell et al. 2022, section 5.1).

Progress is the gain of the true picture's rank by an answer. The modes, of at most ten turns:

* env_stops: -1 per turn; the turn that reaches half of the possible progress ends the dialogue with
  reward 0. In play these rewards are scaled and shifted.
* 10_stop: ten turns, each rewarded by its progress.
* agent_stops: as 10_stop, but <stop> ends the dialogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MODES = ("env_stops", "10_stop", "agent_stops")
TURNS = 10
STOP = "<stop>"
_TELLING = (
    "not", "don't", "can't", "don’t", "can’t", "cannot", "fairly", "could", "think so", "okay", "maybe", "yes", "no", "looks",
    "appears", "tell", "mostly just",
)  # fmt: skip


# Rule -> whether an answer in lower case is a yes or a no.
YES_NO: Mapping[str, Callable[[str], bool]] = {
    "none": lambda answer: False,
    "hard": lambda answer: answer in ("yes", "no"),
    "soft": lambda answer: "yes" in answer or "no" in answer,
    "conservative": lambda answer: any(word in answer for word in _TELLING),
}


@dataclass(frozen=True)
class Rules:
    """The rules of a task; `yes_no_reward` is the extra reward of an answer that is one of
    `YES_NO`.

    With `last_turn_free` (compat), as published, the tenth turn costs nothing even if the goal is
    not reached. `in_play`: `scale` and `shift` apply to the rewards of env_stops, too, as in the
    published environment; in its data they do not.
    """

    mode: str = "env_stops"
    goal: float = 1.0
    percentile: float = 0.5
    yes_no: str = "none"
    yes_no_reward: float = 0.0
    scale: float = 1.0
    shift: float = 0.0
    last_turn_free: bool = False
    in_play: bool = False

    def reached(self, initial: float, progress: Sequence[float]) -> bool:
        """Whether the progress reaches the required share of the possible progress from
        `initial`.
        """
        return sum(progress) >= self.percentile * (self.goal - initial)

    def ended(self, initial: float, progress: Sequence[float]) -> bool:
        # Of any mode: the tenth turn is the last.
        if len(progress) >= TURNS:
            return True
        return self.mode == "env_stops" and bool(progress) and self.reached(initial, progress)

    def rewards(
        self, initial: float, answers: Sequence[str], progress: Sequence[float]
    ) -> list[float]:
        """The rewards of questions, given the answers; turns after the end are ignored."""
        if self.mode != "env_stops":
            return [self.scale * gain + self.shift for gain in progress]
        rewards = []
        for turn, answer in enumerate(answers, start=1):
            # The turn that reaches the goal costs nothing.
            free = self.reached(initial, progress[:turn]) or (self.last_turn_free and turn == TURNS)
            penalty = self.yes_no_reward if YES_NO[self.yes_no](answer.lower()) else 0.0
            reward = (0.0 if free else -1.0) + penalty
            rewards.append(self.scale * reward + self.shift if self.in_play else reward)
        return rewards
