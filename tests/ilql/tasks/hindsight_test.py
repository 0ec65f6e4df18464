from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from motif_jax.core import seeds
from motif_jax.envs.babyai_text.prompts import Window
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.tasks import babyai_text, registry
from motif_jax.ilql.tasks.contract import FunctionPolicy, Outcome, TextEnvironment


def prompts_of(*observations: str, window: int = 1) -> list[str]:
    """An agent's prompts, of clauses with semicolons between them."""
    prompts = []
    shown = Window(window)
    for number, clauses in enumerate(observations):
        sentences = [f"You see a {clause}" for clause in clauses.split("; ")] if clauses else []
        if number:
            shown.add("turn left", sentences)
        else:
            shown.start(sentences)
        prompts.append(shown.prompt("go to the red ball", ["turn left", "go forward"]))
    return prompts


AHEAD = "blue key 1 step forward"
FAR = "blue key 2 steps forward"
LEFT = "blue key 1 step left"


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize(
    ("observations", "paths"),
    [
        (("wall 1 step left", FAR, AHEAD), [("blue key", [0, 1])]),
        # An object at hand in the beginning was not reached.
        ((AHEAD, FAR), []),
        ((AHEAD, FAR, AHEAD), [("blue key", [1])]),
        ((FAR, AHEAD, AHEAD, LEFT, AHEAD), [("blue key", [0]), ("blue key", [3])]),
        # Steps that changed nothing and steps that were undone are left out: the last step from
        # each view counts.
        ((FAR, FAR, LEFT, FAR, AHEAD), [("blue key", [3])]),
        ((LEFT, FAR, LEFT, FAR, AHEAD), [("blue key", [2, 3])]),
        (("wall 1 step forward", "red door 1 step forward"), []),
        ((FAR, f"{AHEAD}; red box 1 step left", "red box 1 step forward"), [("blue key", [0]), ("red box", [0, 1])]),
    ],
)  # fmt: skip
def test_a_path_ends_before_an_object_without_detours(
    observations: Sequence[str], paths: list[tuple[str, list[int]]], window: int
) -> None:
    assert list(babyai_text.paths(prompts_of(*observations, window=window))) == paths


def test_a_long_path_is_cut_at_its_beginning() -> None:
    walls = [f"wall {number} steps left" for number in range(2, 12)]

    [(_, path)] = babyai_text.paths(prompts_of(*walls, AHEAD))

    assert path == [4, 5, 6, 7, 8, 9]


class Prompted(NamedTuple):
    """An observation that has a prompt alone."""

    prompt: str

    def to_sequence(self) -> Dialogue:
        return Dialogue((self.prompt,), (None,), False)


class Walk(TextEnvironment):
    """Shows these prompts one after the other, whatever the agent does."""

    def __init__(self, prompts: Sequence[str]) -> None:
        self._prompts = prompts
        self._step = 0

    def reset(self, rng: np.random.Generator, start: Any = None) -> Prompted:
        self._step = 0
        return Prompted(self._prompts[0])

    def step(self, action: str) -> Outcome:
        self._step += 1
        return Outcome(
            Prompted(self._prompts[self._step]), 0.0, self._step == len(self._prompts) - 1
        )


PROMPTS = prompts_of("wall 1 step left", FAR, AHEAD)


def relabelled(seed: int) -> list[Dialogue]:
    """The dialogues of two walks, groups 7 and 8."""
    stream = babyai_text.hindsight_of(
        Walk(PROMPTS), FunctionPolicy(lambda observation, rng: "turn left")
    )
    return list(stream(seeds.rng(seed), 2, 7))


def test_a_mission_names_the_object_that_was_reached() -> None:
    first, second, *_ = relabelled(seed=0)

    article = first.texts[0].partition("go to ")[2].split()[0]
    before, after = (
        prompt.replace("the red ball", f"{article} blue key") for prompt in PROMPTS[:2]
    )
    # The object was not in sight yet, so nothing is said of it.
    assert first == Dialogue((before, "turn left"), (None, 0.0), False, {"group": 7})
    texts = (after, "turn left", " \n Goal:\n2 steps forward, ")
    assert second == Dialogue(texts, (None, 1.0, None), True, {"group": 7})


def test_episodes_are_numbered_groups() -> None:
    assert [dialogue.meta["group"] for dialogue in relabelled(seed=0)] == [7, 7, 8, 8]


def test_the_article_of_a_mission_is_drawn() -> None:
    first_texts = [relabelled(seed)[0].texts[0] for seed in range(9)]

    assert {text.partition("go to ")[2].split()[0] for text in first_texts} == {"the", "a"}


def test_random_play_of_a_level_reaches_objects() -> None:
    task = registry.make("babyai_text", {"observations": 1})

    dialogues = list(task.stream("hindsight", "random")(seeds.rng(3), 4, 0))

    assert len(dialogues) > 10
    assert {len(dialogue.texts) for dialogue in dialogues} == {2, 3}
