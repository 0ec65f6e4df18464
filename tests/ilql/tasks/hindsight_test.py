from __future__ import annotations

import itertools
import types
from unittest.mock import Mock

import pytest

from motif_jax.core import seeds
from motif_jax.envs.babyai_text.prompts import Window
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.tasks import hindsight, registry
from motif_jax.ilql.tasks.contract import FunctionPolicy, Outcome, TextEnvironment


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
    [(_, way)] = hindsight.ways(read(*(f"wall {number} steps left" for number in range(2, 12)), AHEAD))
    assert way == [4, 5, 6, 7, 8, 9]


def walk(prompts):
    """Shows given prompts, whatever is done."""
    first, *seen = (types.SimpleNamespace(prompt=prompt) for prompt in prompts)
    outcomes = itertools.cycle([Outcome(now, 0.0, now is seen[-1]) for now in seen])
    return Mock(TextEnvironment, reset=lambda *_: first, step=lambda *_: next(outcomes))


def test_a_dialogue_has_another_mission_what_was_done_and_where_the_thing_was() -> None:
    """Of a thing that was not yet seen no place is told; the article of the mission is drawn."""
    prompts, articles = read("wall 1 step left", FAR, AHEAD), set()
    stream = hindsight.hindsight_of(walk(prompts), FunctionPolicy(lambda seen, rng: "turn left"))
    for seed in range(9):
        first, second, third, fourth = stream(seeds.rng(seed), 2, 7)
        article = first.texts[0].partition("go to ")[2].split()[0]
        articles.add(article)
        before, after = (prompt.replace("the red ball", f"{article} blue key") for prompt in prompts[:2])
        assert first == Dialogue((before, "turn left"), (None, 0.0), False, {"group": 7})
        texts = (after, "turn left", " \n Goal:\n2 steps forward, ")
        assert second == Dialogue(texts, (None, 1.0, None), True, {"group": 7})
        assert (third.meta, fourth.meta, fourth.texts[2]) == ({"group": 8}, {"group": 8}, texts[2])
    assert articles == {"the", "a"}


def test_random_play_of_a_level_gives_ways() -> None:
    task = registry.make("babyai_text", {"observations": 1})
    drawn = list(task.stream("hindsight", "random")(seeds.rng(3), 4, 0))
    assert len(drawn) > 10
    assert {len(each.texts) for each in drawn} == {2, 3}
