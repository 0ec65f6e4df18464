"""Random play, told as ways to what it met."""

from __future__ import annotations

import pytest

from motif_jax.envs.babyai_text import hindsight
from motif_jax.envs.babyai_text.prompts import Window
from motif_jax.envs.text import registry
from motif_jax.envs.text.contract import TextEnvironment, TextPolicy
from motif_jax.support import seeds


def read(*observations: str, window: int = 1) -> list[str]:
    """An agent's prompts, of clauses with semicolons between them."""
    found, seen = [], Window(window)
    for number, clauses in enumerate(observations):
        said = [f"You see a {clause}" for clause in clauses.split("; ")] if clauses else []
        seen.add("turn left", said) if number else seen.start(said)
        found.append(seen.prompt("go to the red ball", ["turn left", "go forward"]))
    return found


AHEAD, FAR, LEFT = "blue key 1 step forward", "blue key 2 steps forward", "blue key 1 step left"


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize(
    ("observations", "found"),
    [
        (("wall 1 step left", FAR, AHEAD), [("blue key", [0, 1])]),
        # Where it began, it did not come to.
        ((AHEAD, FAR), []),
        ((AHEAD, FAR, AHEAD), [("blue key", [1])]),
        ((FAR, AHEAD, AHEAD, LEFT, AHEAD), [("blue key", [0]), ("blue key", [3])]),
        # What changed nothing and what was undone is left out: the last step from each view counts.
        ((FAR, FAR, LEFT, FAR, AHEAD), [("blue key", [3])]),
        ((LEFT, FAR, LEFT, FAR, AHEAD), [("blue key", [2, 3])]),
        (("wall 1 step forward", "red door 1 step forward"), []),
        ((FAR, f"{AHEAD}; red box 1 step left", "red box 1 step forward"), [("blue key", [0]), ("red box", [0, 1])]),
    ],
)  # fmt: skip
def test_a_way_ends_before_a_thing_and_has_no_rounds(observations, found, window) -> None:
    assert list(hindsight.ways(read(*observations, window=window))) == found


def test_a_long_way_is_cut_at_its_beginning() -> None:
    seen = [f"wall {number} steps left" for number in range(2, 12)]
    [(_, way)] = hindsight.ways(read(*seen, AHEAD))
    assert way == [4, 5, 6, 7, 8, 9]
    assert len(way) == hindsight.MOST_STEPS


class Recorded(TextEnvironment):
    """Keeps all prompts and actions of each episode."""

    def __init__(self, environment: TextEnvironment) -> None:
        self._environment, self.episodes = environment, []

    def reset(self, rng, start=None):
        now = self._environment.reset(rng, start)
        self.episodes.append(([now.prompt], []))
        return now

    def step(self, action):
        outcome = self._environment.step(action)
        self.episodes[-1][0].append(outcome.observation.prompt)
        self.episodes[-1][1].append(action)
        return outcome


def test_a_dialogue_has_another_mission_what_was_done_and_where_the_thing_was() -> None:
    task = registry.make("babyai_text", {"observations": 1})
    world = Recorded(task.environment())
    policy: TextPolicy = task.policy("random")
    stream = hindsight.hindsight_of(world, policy)
    drawn = list(stream(seeds.rng(3), 4, 0))
    assert len(drawn) > 10
    articles, places = set(), 0
    for step in drawn:
        prompts, actions = world.episodes[step.meta["group"]]
        before, goal = step.texts[0].split(" \n Goal of the agent: go to ")
        goal, behind = goal.split(" \n ", 1)
        article, thing = goal.split(" ", 1)
        articles.add(article)
        same = [
            n
            for n, prompt in enumerate(prompts[:-1])
            if prompt.startswith(before) and prompt.endswith(behind)
        ]
        here = [number for number in same if actions[number] == step.texts[1]]
        assert here
        if step.terminal:
            assert step.rewards[1] == 1.0
            assert any(f"You see a {thing} 1 step forward, " in prompts[number + 1] for number in here)
        if f"You see a {thing} " in behind:
            places += 1
            place = step.texts[2].removeprefix(" \n Goal:\n")
            assert f"You see a {thing} {place}\n Action 0: " in behind
        else:
            assert len(step.texts) == 2
    assert articles == {"the", "a"}
    assert 0 < places < len(drawn)
