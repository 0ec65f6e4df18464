"""Random play relabelled in hindsight: steps that led to a thing are right for a mission that names it.

Source: Andrychowicz et al. 2017, hindsight experience replay, here for imitation without an expert.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from motif_jax.envs.babyai_text import prompts
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues, DialogueStream
from motif_jax.ilql.tasks.contract import TextEnvironment, TextPolicy, interact

# Longer paths of random play are mostly detours.
MOST_STEPS = 6
_THING = re.compile(r"You see a (\w+ (?:key|ball|box)) ([^,]+), ")
_AT_HAND = "1 step forward"


def hindsight_of(environment: TextEnvironment, policy: TextPolicy) -> DialogueStream:
    """The stream of steps towards a thing that the agent reached, in prompts whose mission is to go to it.

    Each has the prompt, the action, and the part of the observation from the thing on, if the agent saw it.
    """

    def draw(rng: np.random.Generator, count: int, first: int) -> Dialogues:
        dialogues: list[Dialogue] = []
        for group in range(first, first + count):
            end, steps = interact(environment, policy, rng)
            read = [*(before.prompt for before, _, _ in steps), end.prompt]
            for thing, way in ways(read):
                # The article of a mission depends on how many such things the world has.
                goal = f"go to {('the', 'a')[int(rng.integers(2))]} {thing}"
                for step in way:
                    is_last = step == way[-1]
                    texts = [prompts.with_goal(read[step], goal), steps[step].action]
                    rewards = [None, float(is_last)]
                    _, thing_is_visible, place = _newest(read[step]).partition(f"You see a {thing} ")
                    if thing_is_visible:
                        texts, rewards = [*texts, prompts.from_goal(place)], [*rewards, None]
                    dialogues.append(Dialogue(tuple(texts), tuple(rewards), is_last, {"group": group}))
        return Dialogues.of(dialogues)

    return draw


def ways(read: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Yields the things that an episode led to, by its English prompts `read`, the last of which follows the last step.

    With each come the numbers of at most `MOST_STEPS` steps up to it, without detours that return to an earlier view.
    """
    seen = [_newest(prompt) for prompt in read]
    at_hand = [{thing for thing, place in _THING.findall(view) if place == _AT_HAND} for view in seen]
    for end in range(1, len(read)):
        for thing in sorted(at_hand[end] - at_hand[end - 1]):
            away = next((step for step in range(end - 1, -1, -1) if thing in at_hand[step]), -1)
            way: list[int] = []
            for step in range(away + 1, end):
                again = [place for place, before in enumerate(way) if seen[before] == seen[step]]
                way[again[0] if again else len(way) :] = [step]
            yield thing, way[-MOST_STEPS:]


def _newest(prompt: str) -> str:
    return prompt.rpartition("Observation ")[2].partition(": ")[2].partition("\n")[0]
