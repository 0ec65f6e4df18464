"""Pairs with a known answer."""

from __future__ import annotations

import json

import pytest

from motif_jax.core.verdicts import FIRST, SECOND, TIE, UNKNOWN
from motif_jax.motif.annotation import judge_probes, lexicon
from motif_jax.motif.annotation.judge_probes import ProbePair
from motif_jax.motif.annotation.store import StoredAnswer

PAIRS = [ProbePair("kill", "wall"), ProbePair("gold", "")]


@pytest.mark.parametrize(
    ("name", "count"),
    [("nethack", 30), ("nethack_hunger", 12), ("minihack", 30), ("minigrid", 30), ("crafter", 30)],
)
def test_each_file_has_different_pairs(name: str, count: int) -> None:
    pairs = judge_probes.read(name)
    assert len(set(pairs)) == len(pairs) == count
    assert all(pair.better != pair.worse and pair.better for pair in pairs)
    assert not {pair.better for pair in pairs} & {pair.worse for pair in pairs}


def figures(*first_shares: float):
    answers = [
        StoredAnswer(FIRST if p > 0.5 else SECOND, (p, 1 - p, 0.0), mass=0.9) for p in first_shares
    ]
    return judge_probes.probe_figures(PAIRS, answers)


def test_a_judge_that_knows_is_right_in_both_orders() -> None:
    probe_figures = figures(0.9, 0.8, 0.2, 0.3)
    assert (
        probe_figures["right_one_order"],
        probe_figures["right_both_orders"],
        probe_figures["first_share"],
    ) == (1.0, 1.0, 0.5)
    assert probe_figures["wrong"] == []
    assert judge_probes.verdict(probe_figures) == "Its labels are of use, in one order too."


def test_a_judge_that_says_first_can_be_right_on_average() -> None:
    probe_figures = figures(0.9, 0.8, 0.6, 0.7)
    assert (
        probe_figures["right_one_order"],
        probe_figures["right_both_orders"],
        probe_figures["first_share"],
    ) == (0.5, 1.0, 1.0)
    assert judge_probes.verdict(probe_figures).startswith(
        "It always answers first: ask both orders"
    )


def test_ties_that_lean_to_the_right_side_are_not_right() -> None:
    """As `annotate` labels them: the lexicon calls a small difference a tie, and its probabilities
    lean all the same.
    """
    leaning = [StoredAnswer(TIE, (p, 0.8 - p, 0.2)) for p in (0.5, 0.5, 0.3, 0.3)]
    probe_figures = judge_probes.probe_figures(PAIRS, leaning)
    assert probe_figures["right_both_orders"] == 0.0
    assert len(probe_figures["wrong"]) == 2


def test_a_lexicon_is_right_as_its_labels_are(tmp_path) -> None:
    """A difference of worth of 0.1 is within the margin of 0.2."""
    path = tmp_path / "small.yaml"
    path.write_text(
        "{name: small, goals: [g], margin: 0.2, scale: 1, unmatched: {g: 0}, blank: {g: 0},"
        " events: [{event: kill, weights: {g: 0.1}, patterns: [kill]}, {event: gold, weights: {g: 1}, patterns: [gold]}]}"
    )
    judge = lexicon.LexiconJudge(lexicon.load_lexicon(str(path)), "g")
    orders = [*PAIRS, *[pair[::-1] for pair in PAIRS]]
    answers = [judge.answer(*items) for items in orders]
    stored = [StoredAnswer(answer.label, answer.probabilities) for answer in answers]

    probe_figures = judge_probes.probe_figures(PAIRS, stored)

    assert [answer.label for answer in answers] == [TIE, FIRST, TIE, SECOND]
    assert probe_figures["right_both_orders"] == 0.5
    assert probe_figures["wrong"] == [{**PAIRS[0]._asdict(), "label": "tie"}]
    assert "wrong: a tie of 'kill' and 'wall'" in judge_probes.describe(probe_figures)


def test_right_answers_are_a_share_of_all_questions() -> None:
    answers = [StoredAnswer(FIRST, (0.9, 0.1, 0.0)), *[StoredAnswer(UNKNOWN, None)] * 3]

    lines = judge_probes.describe(judge_probes.probe_figures(PAIRS, answers))

    assert "right in one order    25% of 4 questions\n" in lines
    assert "no verdict            75% of 4 questions\n" in lines
    assert "no verdict: 'gold' and ''\n" in lines
    assert lines.endswith("Most answers have no verdict: look at their texts in config.store_dir.")


def test_a_judge_without_verdicts_has_no_shares() -> None:
    mute = judge_probes.probe_figures(PAIRS, [StoredAnswer(UNKNOWN)] * 4)

    lines = judge_probes.describe(mute).splitlines()

    assert "same winner in both   n/a" in lines
    assert "says first            n/a of 0 decided answers" in lines
    assert not [line for line in lines if line.startswith("wrong")]


def test_a_judge_by_position_is_named() -> None:
    probe_figures = figures(0.9, 0.9, 0.9, 0.9)
    assert probe_figures["right_both_orders"] == 0.0
    assert probe_figures["wrong"][0] == {"better": "kill", "worse": "wall", "label": "tie"}
    assert judge_probes.verdict(probe_figures).startswith(
        "It always answers first: its labels are of no use"
    )


def test_ones_own_file_is_read(tmp_path) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps([PAIRS[0]._asdict()]))
    assert judge_probes.read(str(path)) == PAIRS[:1]
