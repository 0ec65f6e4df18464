"""The lexicon reads messages as a player would, and its labels follow from the captions alone."""

from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest
import yaml
from ml_collections import ConfigDict

from motif_jax.core.verdicts import FIRST, PAIR, SECOND, SINGLE, TIE, YES
from motif_jax.envs import registry
from motif_jax.envs.nethack.random_players import HABITS
from motif_jax.envs.spec import RUNNING, empty_observation
from motif_jax.motif.annotation.annotator import Question
from motif_jax.motif.annotation.captions import decode_message
from motif_jax.motif.annotation.lexicon import (
    LexiconAnnotator,
    LexiconJudge,
    load_lexicon,
    preference,
    sentences,
)
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

# Messages of the game and what they are about; the places where patterns could easily be confused.
TOLD = {
    "You kill the newt!": "kill",
    "You kill the poor kitten!": "murder",
    "You kick at empty space.": "vain_kick",
    "The jackal bites!": "hit_taken",
    "The newt just misses!": "monster_dodged",
    "The little dog misses the fox.": "pet_fights",
    "You are frozen by the floating eye's gaze!": "bad_hit_taken",
    "You can't move!": "bad_hit_taken",
    "You can't move diagonally out of an intact doorway.": "way_blocked",
    "Really attack the gnome? [yn] (n)": "bad_attack",
    "It's a wall.": "way_blocked",
    "You feel weak!": "attribute_lost",
    "You feel weak now.": "hungry",
    "You descend the stairs.": "stairs_descended",
    "A trap door opens up under you!": "fell_deeper",
    "A trap door in the ceiling opens and a rock falls on your head!": "trap_sprung",
    "There is a staircase down here.": "staircase_down_here",
    "You can't go down here.": "no_stairs_here",
    "$ - 4 gold pieces.": "gold_taken",
    "You see here 12 gold pieces.": "gold_seen",
    "The kitten picks up a gold piece.": "gold_near",
    "The kitten picks up a lichen corpse.": "pet_company",
    "You hear someone counting money.": "gold_near",
    "k - a scroll labeled THARR.": "thing_taken",
    "You see here a bronze ring.": "valuable_seen",
    "You see here a ring mail.": "gear_seen",
    "You see here a tin wand.": "magic_seen",
    "You see here a tin.": "food_seen",
    "You see here a lichen corpse.": "junk_seen",
    "There is a newt corpse here; eat it? [ynq] (n)": "food_here",
    "You are beginning to feel hungry.": "hungry",
    "What do you want to eat? [fghi or ?*]": "wrong_meal",
    "As you kick the door, it crashes open!": "door_opened",
    "You escape a dart trap.": "trap_escaped",
    "An arrow shoots out at you!": "trap_sprung",
    "You die...": "death",
    "They say that a wizard is even more powerful the second time around.": "rumor",
    "The sky is a strange shade of teal.": None,
}


@pytest.fixture(scope="module")
def lexicon():
    return load_lexicon()


def test_messages_tell_their_event(lexicon):
    assert {text: lexicon.event(text) for text in TOLD} == TOLD


# What each narrow goal is about; everything else is worth no more than silence, so that only this pays an agent.
ABOUT = {
    "combat": "kill hit miss monster_flees level_gained",
    "gold": "gold_taken gold_seen gold_earned",
    "stairs": "stairs_descended fell_deeper new_place staircase_down_here",
}


def test_goals_have_common_sense_and_a_narrow_one_prizes_nothing_else(lexicon):
    for goal in ("zeroknowledge", "defaultgoal", *ABOUT):
        worth = LexiconJudge(lexicon, goal).worth
        assert worth("You die...") < worth("The jackal bites!") < worth("") <= worth("The door opens.")
    for goal, about in ABOUT.items():
        prized = {event.name for event in lexicon.events if event.weights[goal] > 0} - {"saved_from_death"}
        assert (prized, lexicon.unmatched[goal], lexicon.blank[goal]) == (set(about.split()), 0, 0)


def test_sentences():
    assert sentences("") == []
    text = "It's a wall. (x3)\nThe jackal bites!  You miss it. [Dlvl:1 $:0 HP:12 (13) Xp:1]"
    assert sentences(text) == ["It's a wall.", "The jackal bites!", "You miss it."]


@pytest.mark.parametrize("piece", [" ", "[Dlvl:1 ", "\t "])
def test_the_time_of_a_caption_grows_with_its_length(piece):
    """100,000 blanks took a minute: a million would take longer than any test may."""
    caption = piece * 1_000_000 + "x"
    assert sentences(caption) == [caption.strip()]


def test_a_caption_is_worth_the_sum_of_its_different_sentences(lexicon):
    worth = LexiconJudge(lexicon, "defaultgoal").worth
    sum_of_both = worth("You kill the newt!") + worth("It's a wall.")
    for end in ("", "\nYou kill the newt! (x4)"):
        assert worth(f"You kill the newt!  It's a wall.{end}") == sum_of_both


def test_labels_are_an_order(lexicon):
    judge = LexiconJudge(lexicon, "defaultgoal")
    for first, second in itertools.combinations(TOLD, 2):
        answer, reverse = judge.answer(first, second), judge.answer(second, first)
        assert reverse.label == {FIRST: SECOND, SECOND: FIRST, TIE: TIE}[answer.label]
        one, two, tie = answer.probabilities
        assert reverse.probabilities == pytest.approx((two, one, tie))
        assert one + two + tie == pytest.approx(1.0)
        assert np.argmax(answer.probabilities) == answer.label
    assert judge.answer("You die...", "You die...").label == TIE


def test_preference_margin():
    assert [preference(d, 0.25, 0.15).label for d in (-0.5, -0.25, 0, 0.25, 0.5)] == [1, 2, 2, 2, 0]
    assert preference(-1000.0, 0.25, 0.15).probabilities == pytest.approx((0.0, 1.0, 0.0))
    first, second = 1 / (1 + np.exp(-0.25 / 0.15)), 1 / (1 + np.exp(0.75 / 0.15))
    assert preference(0.5, 0.25, 0.15).probabilities == pytest.approx((first, second, 1 - first - second))


def small(**changes):
    tree = {
        "name": "mine", "goals": ["win"], "margin": 0.0, "scale": 1.0, "unmatched": {"win": 0}, "blank": {"win": 0},
        "events": [{"event": "hello", "weights": {"win": 1}, "patterns": ["^Hello"]}],
    }  # fmt: skip
    return {**tree, **changes}


def test_own_lexicon(tmp_path, record):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(small()))
    config = ConfigDict({"goal": "win", "lexicon": {"file": str(path)}, "captions": {"messages": True}})
    pair, single = Question("a", ("Hello.", "Bye."), PAIR), Question("a", ("Hello.",), SINGLE)
    lines = []

    def tell():
        for question in (pair, single):
            LexiconAnnotator.check(config, question.form)
            annotator = LexiconAnnotator(config, question.form)
            answers = dict(annotator.annotate([question]))
            told = annotator.short_name, annotator.identity, annotator.preview(question)
            lines.append(f"{told} {answers}")
        return answers[0].probabilities[YES]

    tell()
    path.write_text(yaml.safe_dump(small(margin=2.0, threshold=0.5)))
    assert tell() == pytest.approx(1 / (1 + np.exp(-0.5))), "worth 1, so 0.5 more than the threshold"
    config.captions.messages = False
    lines += [outcome_text(tell)]
    config.captions.messages, config.goal = True, "lose"
    lines += [outcome_text(tell)]
    assert_matches_packed_recording("own_lexicon", {"lines": "\n".join(lines)}, record)


EVENT = small()["events"][0]
TREES = [
    "just text",
    b"a: [1",
    b"name: \xff",
    b"[" * 2000,
    small(goals=[]),
    small(goals=["win", 2]),
    small(events=[]),
    small(margin=-1.0),
    small(scale=0),
    small(scale=True),
    small(margin="1"),
    small(scale=1e300),
    small(blank={}),
    small(events=[EVENT, EVENT]),
    small(events=[EVENT, {"event": "x"}]),
    small(events=[{**EVENT, "patterns": ["(unclosed"]}]),
    small(events=[{**EVENT, "patterns": "Hello"}]),
    small(events={}),
    small(goals="win"),
    small(events=[EVENT, {**EVENT, "event": "x", "patterns": []}]),
    small(events=[{**EVENT, "weights": {"win": "much"}}]),
    small(more=1),
    small(threshold="x"),
    small(events=[{**EVENT, "patterns": ["a", 1]}]),
    small(unmatched={"win": 1, "lose": 1}),
    small(margin=0, threshold=0.5, events=[EVENT, {**EVENT, "event": 7}]),
]


def test_wrong_lexicons_are_told_in_one_line(tmp_path, record):
    lines = []
    for number, tree in enumerate(TREES):
        data = tree if isinstance(tree, bytes) else yaml.safe_dump(tree).encode()
        (tmp_path / f"{number}").write_bytes(data)
        lines += [outcome_text(load_lexicon, tmp_path / f"{number}", folder=tmp_path)]
    lines += [outcome_text(load_lexicon, path, folder=tmp_path) for path in ("none.yaml", tmp_path)]
    judge = LexiconJudge(load_lexicon(tmp_path / f"{number}"), "win")
    lines += [str(judge.answer(*texts)) for texts in (("Hello",), ("",), ("Hello", "you"), ("you", "Hello"))]
    assert_matches_packed_recording("lexicons", {"lines": "\n".join(lines)}, record)


def test_most_of_what_the_game_really_says_is_known(lexicon):
    env = registry.make("NetHackScore-v1")
    out, told = empty_observation(env.spec), collections.Counter()
    players = itertools.cycle(("runner", "walker", "kicker", "descender"))
    for seed in range(20):
        env.reset(seed, out)
        for action in itertools.islice(HABITS[next(players)].actions(seed), 1500):
            told.update((lexicon.event(text), text) for text in sentences(decode_message(out["message"])))
            if env.step(action, out)[1] != RUNNING:
                break
    env.close()
    unknown = {sentence: n for (event, sentence), n in told.items() if event is None}
    assert sum(unknown.values()) < 0.01 * told.total(), unknown
    assert len(unknown) < 0.15 * len(told)
    assert len({event for event, _ in told if event}) > 30


def test_a_lexicon_of_ones_own_goes_before_a_built_in_one_of_its_name(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_lexicon("minigrid.yaml").name == "minigrid"
    (tmp_path / "minigrid.yaml").write_text(yaml.safe_dump(small(name="mine")))
    assert load_lexicon("minigrid.yaml").name == "mine"
