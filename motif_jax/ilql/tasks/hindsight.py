"""Random play relabelled in hindsight: the steps that led to an object become demonstrations of the
mission "go to" it.

Source: Andrychowicz et al. 2017, hindsight experience replay, here for imitation without an expert.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from motif_jax.envs.babyai_text import prompts
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues, DialogueStream
from motif_jax.ilql.tasks.contract import TextEnvironment, TextPolicy, interact

# Random play makes longer paths mostly by detours, which would be bad demonstrations.
MAX_STEPS = 6
# In a prompt ", " ends every clause, the last one too (`prompts.observed`).
_OBJECT = re.compile(r"You see a (\w+ (?:key|ball|box)) ([^,]+), ")
_AT_HAND = "1 step forward"


def hindsight_of(environment: TextEnvironment, policy: TextPolicy) -> DialogueStream:
    """The stream of steps towards an object that the agent reached, in prompts whose mission is to
    go to it.

    Each dialogue is one step: the prompt with the new mission, the action, and, if the object was
    in view, a text of the environment with what the newest observation says after the object's
    name. A language model that is pretrained on the dialogues predicts this text after the action
    (`lm.text_data`), for which it has to find the mission's object in the prompt.
    """

    def draw(rng: np.random.Generator, count: int, first: int) -> Dialogues:
        dialogues: list[Dialogue] = []
        for episode in range(first, first + count):
            end, steps = interact(environment, policy, rng)
            episode_prompts = [*(step.observation.prompt for step in steps), end.prompt]
            for name, path in paths(episode_prompts):
                # The article of a mission depends on how many such objects the world has.
                article = ("the", "a")[int(rng.integers(2))]
                goal = f"go to {article} {name}"
                for number in path:
                    prompt = episode_prompts[number]
                    is_last = number == path[-1]
                    texts = [prompts.with_goal(prompt, goal), steps[number].action]
                    rewards = [None, float(is_last)]
                    _, is_in_sight, after_name = _newest_view(prompt).partition(
                        f"You see a {name} "
                    )
                    if is_in_sight:
                        texts.append(prompts.sighting(after_name))
                        rewards.append(None)
                    dialogues.append(
                        Dialogue(tuple(texts), tuple(rewards), is_last, {"group": episode})
                    )
        return Dialogues.of(dialogues)

    return draw


def paths(episode_prompts: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Yields the objects that an episode led to, with the indices of the last `MAX_STEPS` steps
    before each.

    Steps that return to an earlier view are left out.

    Args:
      episode_prompts: in English, one before each step and one after the last.
    """
    views = [_newest_view(prompt) for prompt in episode_prompts]
    reached = [_objects_at_hand(view) for view in views]
    for end in range(1, len(views)):
        # What this step reached was not at hand before it. Sorted, since sets have no order.
        for name in sorted(reached[end] - reached[end - 1]):
            # The path begins where the agent had left this object last, or with the episode.
            start = end
            while start > 0 and name not in reached[start - 1]:
                start -= 1
            yield name, _without_detours(views, range(start, end))[-MAX_STEPS:]


def _without_detours(views: Sequence[str], steps: Sequence[int]) -> list[int]:
    path: list[int] = []
    for step in steps:
        views_of_path = [views[number] for number in path]
        # The steps since the earlier view were a circle.
        if views[step] in views_of_path:
            del path[views_of_path.index(views[step]) :]
        path.append(step)
    return path


def _objects_at_hand(view: str) -> set[str]:
    return {name for name, direction in _OBJECT.findall(view) if direction == _AT_HAND}


def _newest_view(prompt: str) -> str:
    """The newest observation of a prompt."""
    return prompt.rpartition("Observation ")[2].partition(": ")[2].partition("\n")[0]
