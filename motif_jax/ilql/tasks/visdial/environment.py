"""A dialogue about a picture as a text environment, whose other side answers (Snell et al. 2022,
section 5.1).

Progress is the gain of the true picture's rank by an answer. The modes, of at most ten turns:

* env_stops: -1 per turn; the turn that reaches half of the possible progress ends the dialogue with
  reward 0. In play these rewards are scaled and shifted.
* 10_stop: ten turns, each rewarded by its progress.
* agent_stops: as 10_stop, but <stop> ends the dialogue.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.tasks.contract import Observation, Outcome, TextEnvironment
from motif_jax.ilql.tasks.visdial.client import VisDialServer
from motif_jax.ilql.tasks.visdial.data import Scene

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


class Talk(NamedTuple):
    """A dialogue about the picture of `scene`, whose recorded dialogue is ignored; `stopped`: by
    the agent's <stop>.
    """

    scene: Scene
    initial: float
    questions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    progress: tuple[float, ...] = ()
    stopped: bool = False


class VisDialObservation(Observation):
    """A talk so far, under the rules of a task."""

    def __init__(self, talk: Talk, rules: Rules) -> None:
        self.talk = talk
        self._rules = rules

    def to_sequence(self) -> Dialogue:
        talk = self.talk
        rules = self._rules
        texts: list[str] = [talk.scene.caption]
        rewards: list[float | None] = [None]
        paid = rules.rewards(talk.initial, talk.answers, talk.progress)
        for question, answer, reward in zip(talk.questions, talk.answers, paid, strict=True):
            texts += [question, answer]
            rewards += [reward, None]
        if talk.stopped:
            texts.append(STOP)
            rewards.append(0.0)
        ended = talk.stopped or rules.ended(talk.initial, talk.progress)
        return Dialogue(tuple(texts), tuple(rewards), ended, {"image": talk.scene.image})

    def history(self) -> list[dict[str, str]]:
        """The turns as the server's protocol has them."""
        history = []
        for question, answer in zip(self.talk.questions, self.talk.answers, strict=True):
            history.append({"speaker": "question", "text": question})
            history.append({"speaker": "answer", "text": answer})
        return history


def recorded(scene: Scene, rules: Rules) -> list[VisDialObservation]:
    """The dialogues of a scene: the recorded one up to its end; under agent_stops each prefix with
    <stop>, and the whole.
    """
    # Unknown without a reward cache: nothing is reached, and all turns are taken.
    progress = scene.progress or (0.0,) * len(scene.answers)
    initial = scene.initial or 0.0

    def first_turns(turns: int, stopped: bool = False) -> VisDialObservation:
        talk = Talk(
            scene,
            initial,
            scene.questions[:turns],
            scene.answers[:turns],
            progress[:turns],
            stopped,
        )
        return VisDialObservation(talk, rules)

    total = len(scene.answers)
    if rules.mode == "agent_stops":
        return [first_turns(turns, stopped=True) for turns in range(total)] + [first_turns(total)]
    # A recorded dialogue goes on after the turn with which the rules end it.
    ends = (turns for turns in range(1, total) if rules.ended(initial, progress[:turns]))
    return [first_turns(next(ends, total))]


class VisDialEnvironment(TextEnvironment):
    """A dialogue with the other side about a picture from `scenes`."""

    def __init__(
        self, scenes: Sequence[Scene], features: Any, other: VisDialServer, rules: Rules
    ) -> None:
        self._scenes = scenes
        self._features = features
        self._other = other
        # Scale and shift apply to rewards in play, see `Rules`.
        self._rules = dataclasses.replace(rules, in_play=True)
        self._now: VisDialObservation | None = None

    def reset(self, rng: np.random.Generator, start: Any = None) -> VisDialObservation:
        if start is None:
            scene = self._scenes[int(rng.integers(len(self._scenes)))]
            initial = scene.initial
            if initial is None:
                # No reward cache says it: the server values an empty history.
                initial = self._other.value([], scene.caption, self._features[scene.image])
            start = VisDialObservation(Talk(scene, initial), self._rules)
        self._now = start
        return start

    def step(self, action: str) -> Outcome:
        now = self._now
        if now is None or now.to_sequence().terminal:
            raise ValueError("the dialogue has ended")
        talk = now.talk
        if self._rules.mode == "agent_stops" and STOP in action:
            talk = talk._replace(stopped=True)
        else:
            history = [*now.history(), {"speaker": "question", "text": action}]
            answer, progress = self._other.step(
                history, talk.scene.caption, self._features[talk.scene.image]
            )
            talk = talk._replace(
                questions=(*talk.questions, action),
                answers=(*talk.answers, answer),
                progress=(*talk.progress, progress),
            )
        self._now = VisDialObservation(talk, self._rules)
        dialogue = self._now.to_sequence()
        reward = [reward for reward in dialogue.rewards if reward is not None][-1]
        return Outcome(self._now, reward, dialogue.terminal)


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
