"""The lexicon reads messages as a player would, and its labels follow from the captions alone."""

from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest
import yaml
from ml_collections import ConfigDict

from motif_jax.core.verdicts import FIRST, NO, PAIR, SECOND, SINGLE, TIE, YES
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
from motif_jax.motif.annotation.shards import check_name

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


# What each narrow goal is about; everything else is worth no more than silence, so that only this
# pays an agent.
ABOUT = {
    "combat": "kill hit miss monster_flees level_gained",
    "gold": "gold_taken gold_seen gold_earned",
    "stairs": "stairs_descended fell_deeper new_place staircase_down_here",
}


def test_goals_rank_sensibly_and_narrow_ones_pay_nothing_else(lexicon):
    for goal in ("zeroknowledge", "defaultgoal", *ABOUT):
        worth = LexiconJudge(lexicon, goal).worth
        assert (
            worth("You die...") < worth("The jackal bites!") < worth("") <= worth("The door opens.")
        )
    for goal, about in ABOUT.items():
        prized = {event.name for event in lexicon.events if event.weights[goal] > 0} - {
            "saved_from_death"
        }
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
        answer = judge.answer(first, second)
        reverse = judge.answer(second, first)
        assert reverse.label == {FIRST: SECOND, SECOND: FIRST, TIE: TIE}[answer.label]
        one, two, tie = answer.probabilities
        assert reverse.probabilities == pytest.approx((two, one, tie))
        assert one + two + tie == pytest.approx(1.0)
        assert np.argmax(answer.probabilities) == answer.label
    assert judge.answer("You die...", "You die...").label == TIE


def test_preference_margin():
    assert [preference(d, 0.25, 0.15).label for d in (-0.5, -0.25, 0, 0.25, 0.5)] == [1, 2, 2, 2, 0]
    assert preference(-1000.0, 0.25, 0.15).probabilities == pytest.approx((0.0, 1.0, 0.0))
    first = 1 / (1 + np.exp(-0.25 / 0.15))
    second = 1 / (1 + np.exp(0.75 / 0.15))
    assert preference(0.5, 0.25, 0.15).probabilities == pytest.approx(
        (first, second, 1 - first - second)
    )


def small(**changes):
    tree = {
        "name": "mine", "goals": ["win"], "margin": 0.0, "scale": 1.0, "unmatched": {"win": 0}, "blank": {"win": 0},
        "events": [{"event": "hello", "weights": {"win": 1}, "patterns": ["^Hello"]}],
    }  # fmt: skip
    return {**tree, **changes}


@pytest.fixture
def annotator_of(tmp_path):
    """Makes annotators of a lexicon of one's own, in which a greeting is worth 1."""

    def make(form, goal="win", messages=True, **changes):
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump(small(**changes)))
        config = ConfigDict(
            {"goal": goal, "lexicon": {"file": str(path)}, "captions": {"messages": messages}}
        )
        LexiconAnnotator.check(config, form)
        return LexiconAnnotator(config, form)

    return make


HELLO_BYE = Question("a", ("Hello.", "Bye."), PAIR)
HELLO = Question("a", ("Hello.",), SINGLE)


def test_a_lexicon_of_ones_own_judges_by_its_worths(annotator_of):
    answers = dict(annotator_of(PAIR).annotate([HELLO_BYE]))
    assert answers[0].label == FIRST
    assert answers[0].probabilities == pytest.approx((1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0))
    assert annotator_of(PAIR).preview(HELLO_BYE).text == "[worth 1]\nHello.\n----\n[worth 0]\nBye."
    assert annotator_of(PAIR).preview(HELLO_BYE).tokens is None


def test_a_difference_within_the_margin_is_a_tie(annotator_of):
    assert dict(annotator_of(PAIR, margin=2.0).annotate([HELLO_BYE]))[0].label == TIE


def test_a_single_text_is_judged_by_the_threshold(annotator_of):
    """Worth 1: 0.5 more than the threshold, or 2 less than the built-in one."""
    above = dict(annotator_of(SINGLE, threshold=0.5).annotate([HELLO]))[0]
    below = dict(annotator_of(SINGLE).annotate([HELLO]))[0]
    assert above.probabilities[YES] == pytest.approx(1 / (1 + np.exp(-0.5)))
    assert below.probabilities[YES] == pytest.approx(1 / (1 + np.exp(2)))
    assert (above.label, below.label) == (YES, NO)


def test_the_identity_of_a_lexicon_follows_its_content(annotator_of):
    before = annotator_of(PAIR).identity
    assert annotator_of(PAIR).identity == before
    assert annotator_of(PAIR, margin=2.0).identity != before
    assert annotator_of(PAIR).short_name == "mine_msg_win"


def test_a_lexicon_in_another_order_of_keys_is_unchanged(tmp_path):
    """Its stored answers count on."""
    paths = [tmp_path / "mine.yaml", tmp_path / "reordered" / "mine.yaml"]
    paths[1].parent.mkdir()
    for path, entries in zip(paths, (small().items(), reversed(small().items())), strict=True):
        path.write_text(yaml.safe_dump(dict(entries), sort_keys=False))
    assert paths[0].read_text() != paths[1].read_text()

    assert load_lexicon(paths[0]).digest == load_lexicon(paths[1]).digest


def test_a_goal_of_any_letters_makes_a_name_of_labels(annotator_of):
    goal = "win, or flee"
    weights = {goal: 1}
    events = [{"event": "hello", "weights": weights, "patterns": ["^Hello"]}]
    of_goal = {"goals": [goal], "unmatched": weights, "blank": weights, "events": events}

    name = annotator_of(PAIR, goal=goal, **of_goal).short_name

    check_name(name)
    assert name == "mine_msg_win-or-flee"


def test_without_margin_only_equal_worths_are_a_tie(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(small(margin=0)))
    judge = LexiconJudge(load_lexicon(path), "win")
    texts = (("Hello", "you"), ("you", "Hello"), ("you", "they"))
    assert [judge.answer(*items).label for items in texts] == [FIRST, SECOND, TIE]


@pytest.mark.slow
def test_most_of_what_the_game_really_says_is_known(lexicon):
    env = registry.make("NetHackScore-v1")
    out = empty_observation(env.spec)
    counts = collections.Counter()
    players = itertools.cycle(("runner", "walker", "kicker", "descender"))
    for seed in range(20):
        env.reset(seed, out)
        for action in itertools.islice(HABITS[next(players)].actions(seed), 1500):
            counts.update(sentences(decode_message(out["message"])))
            if env.step(action, out)[1] != RUNNING:
                break
    env.close()
    events = {sentence: lexicon.event(sentence) for sentence in counts}
    unknown = {sentence: n for sentence, n in counts.items() if events[sentence] is None}
    assert sum(unknown.values()) < 0.01 * counts.total(), unknown
    assert len(unknown) < 0.15 * len(counts)
    assert len({event for event in events.values() if event}) > 30


def test_a_users_lexicon_precedes_a_built_in_namesake(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_lexicon("minigrid.yaml").name == "minigrid"
    (tmp_path / "minigrid.yaml").write_text(yaml.safe_dump(small(name="mine")))
    assert load_lexicon("minigrid.yaml").name == "mine"
