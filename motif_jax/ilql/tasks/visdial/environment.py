"""A dialogue about a picture as a text environment; the other side answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.tasks.contract import Observation, Outcome, TextEnvironment
from motif_jax.ilql.tasks.visdial.client import VisDialServer
from motif_jax.ilql.tasks.visdial.data import Scene
from motif_jax.ilql.tasks.visdial.rules import STOP, Rules


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
