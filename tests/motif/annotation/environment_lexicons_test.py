"""The lexicons of minigrid and MiniHack know what their environments say."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from motif_jax.envs.babyai_text.sentences import OBJECTS
from motif_jax.envs.minigrid_events.captions import GridCell, caption
from motif_jax.motif.annotation.lexicon import LexiconJudge, load_lexicon, sentences


def test_minihacks_lexicon_pays_for_progress_alone(repository):
    lexicon = load_lexicon(repository / "motif_jax/motif/annotation/lexicons/minihack.yaml")
    worth = LexiconJudge(lexicon, "defaultgoal").worth
    paid = {
        "door_opened": "As you kick the door, it crashes open!",
        "water_crossed": "You push the boulder into the water.  Now you can cross it!",
        "thing_used": "b - an amulet of life saving (being worn).",
        "thing_taken": "g - a key named The Master Key of Thievery.",
        "kill": "You kill the giant rat!",
    }
    assert [lexicon.event(sentences(text)[-1]) for text in paid.values()] == list(paid)
    assert min(map(worth, paid.values())) >= 2
    again_and_again = (
        "",
        "It's a wall.",
        "You see here a key named The Master Key of Thievery.",
        "WHAMM!",
    )
    assert {worth(text) for text in again_and_again} == {0.0}
    assert worth("The giant rat bites!") < 0


def test_minigrids_lexicon_knows_every_caption_and_controls_shuffle_its_values() -> None:
    lexicon = load_lexicon("minigrid.yaml")
    cells = [GridCell(OBJECTS.index("door"), 4, state) for state in range(3)]
    cells += [GridCell(OBJECTS.index(name), 4, 0) for name in ("wall", "key", "empty")]
    captions = {
        caption(action, before, after, moved)
        for action, before, after, moved in itertools.product(range(6), cells, cells, (False, True))
    } - {""}
    assert {lexicon.event(text) for text in captions} == {event.name for event in lexicon.events}
    assert all(lexicon.event(text) for text in captions)
    values = {goal: [event.weights[goal] for event in lexicon.events] for goal in lexicon.goals}
    for seed in (1, 2, 3):
        dealt = np.random.default_rng(seed).permutation(values["defaultgoal"])
        assert values[f"shuffled{seed}"] == dealt.tolist()


def test_crafters_lexicon_knows_every_event_of_a_caption():
    pytest.importorskip(
        "crafter", reason="the package crafter is not there: pip install 'motif-jax[crafter]'"
    )
    from motif_jax.envs.crafter import captions

    lexicon = load_lexicon("crafter.yaml")
    written = [*captions.ACHIEVED.values(), *captions.TOO_HARD.values(), *captions.NEEDS.values()]
    written += [
        *captions.LOSS_BY_NEED.values(),
        "A zombie hits you.",
        "You fall into lava and die.",
        "You die.",
    ]

    events = {text: lexicon.event(text) for text in written}

    without_worth = {"You place a stone."}
    assert {text for text, event in events.items() if event is None} == without_worth


def test_the_lexicon_of_crafter_orders_the_probes_of_judges(repository):
    worth = LexiconJudge(load_lexicon("crafter.yaml"), "crafter").worth
    pairs = json.loads((repository / "configs/probes/judge_crafter.json").read_text())

    agreed = [worth(pair["better"]) > worth(pair["worse"]) for pair in pairs]

    assert np.mean(agreed) > 0.9
