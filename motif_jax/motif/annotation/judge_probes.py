"""Pairs of messages with a known answer, which are asked before a dataset's questions are paid
for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import resources
from motif_jax.core.verdicts import FIRST, PAIR, SECOND, TIE, UNKNOWN, UNKNOWN_NAME
from motif_jax.motif.annotation import judge_figures, labels
from motif_jax.motif.annotation.annotator import Question
from motif_jax.motif.annotation.questions import QuestionHasher
from motif_jax.motif.annotation.session import AnnotationSession
from motif_jax.motif.annotation.store import StoredAnswer

FOLDER = resources.path("configs/probes")
# Shares of right answers, both orders averaged, from which labels are of use, and of some.
_OF_USE, _OF_SOME_USE = 0.9, 0.7


class ProbePair(NamedTuple):
    """Two messages; any player of the game would call the first one better news."""

    better: str
    worse: str


def built_in() -> list[str]:
    """The names of the project's own files: nethack for configs/probes/judge_nethack.json."""
    return [path.stem.removeprefix("judge_") for path in sorted(FOLDER.glob("judge_*.json"))]


def read(name: str) -> list[ProbePair]:
    """The pairs of a built-in file or of one's own, a JSON list of {"better": TEXT, "worse":
    TEXT}.
    """
    path = FOLDER / f"judge_{name}.json" if name in built_in() else Path(name)
    return [ProbePair(**entry) for entry in json.loads(path.read_bytes())]


def ask(session: AnnotationSession, pairs: Sequence[ProbePair]) -> dict[str, Any]:
    """Asks about all pairs in both orders; the figures of `probe_figures`. Answers are stored as
    any others are.
    """
    hasher = QuestionHasher(session.annotator.identity)
    orders = [(pair.better, pair.worse) for pair in pairs] + [
        (pair.worse, pair.better) for pair in pairs
    ]
    questions = [Question(hasher.id_of_texts(items), items) for items in orders]
    answers = session.ask(questions, session.recall(questions, {}))
    return probe_figures(pairs, [answers[question.id] for question in questions])


def probe_figures(pairs: Sequence[ProbePair], answers: Sequence[StoredAnswer]) -> dict[str, Any]:
    """Figures of answers about pairs in both orders: first each (better, worse), then each (worse,
    better).

    Besides those of `judge_figures.answer_figures`: `asked`, the number of questions;
    `right_one_order`, the share of right answers among them; `right_both_orders`, that of pairs
    with the right label; `consistent`; and the pairs whose label is `wrong`, each with the name of
    its `label`. A pair has the label that `annotate` with orders=both would write.
    """
    count = len(pairs)
    verdicts = np.array([answer.label for answer in answers], np.int8)
    forward, reverse = verdicts[:count], verdicts[count:]
    right = np.concatenate([forward == FIRST, reverse == SECOND])
    probabilities = np.array([judge_figures.certain(answer) for answer in answers], np.float64)
    probabilities[verdicts == UNKNOWN] = np.nan
    # From here on as `labels.labels_of_pairs` labels a pair that was asked in both orders.
    turned = probabilities[count:][:, labels.TURNED[:3]]
    mean = labels.mean_probabilities(np.stack([probabilities[:count], turned]))
    pair_labels = labels.agreed(np.stack([forward, labels.TURNED[reverse]]), mean)
    wrong = []
    for pair, label in zip(pairs, pair_labels.tolist(), strict=True):
        if label != FIRST:
            wrong.append({**pair._asdict(), "label": PAIR.labels[label]})
    return {
        **judge_figures.answer_figures(answers),
        "asked": len(answers),
        "consistent": labels.position_bias(forward, reverse)["consistent"],
        "median_log_odds": judge_figures.median_log_odds(answers),
        "right_one_order": float(right.mean()),
        "right_both_orders": float((pair_labels == FIRST).mean()),
        "wrong": wrong,
    }


def describe(figures: dict[str, Any]) -> str:
    """The figures in a line each, and whether labels of this judge are of use."""
    lines = [
        f"right in one order    {figures['right_one_order']:.0%} of {figures['asked']:,} questions",
        f"right in both, mean   {figures['right_both_orders']:.0%}",
        f"same winner in both   {judge_figures.percent(figures['consistent'])}",
        f"says first            {judge_figures.percent(figures['first_share'])} of {figures['decided']:,} decided answers",
    ]
    if figures["unknown_share"]:
        lines.append(
            f"no verdict            {figures['unknown_share']:.0%} of {figures['asked']:,} questions"
        )
    if "mass" in figures:
        lines.append(f"mass of the verdicts  {figures['mass']:.2f}")
    lines += [_fault(pair) for pair in figures["wrong"][:5]]
    return "\n".join([*lines, verdict(figures)])


def _fault(pair: dict[str, str]) -> str:
    """What a judge said about a pair of `wrong`."""
    if pair["label"] == UNKNOWN_NAME:
        return f"no verdict: {pair['better']!r} and {pair['worse']!r}"
    if pair["label"] == PAIR.labels[TIE]:
        return f"wrong: a tie of {pair['better']!r} and {pair['worse']!r}"
    return f"wrong: {pair['worse']!r} above {pair['better']!r}"


def verdict(figures: dict[str, Any]) -> str:
    """One sentence: whether labels of a judge with these figures are of use, and what to do where
    they are not.
    """
    averaged = figures["right_both_orders"]
    if figures["unknown_share"] > judge_figures.HALF:
        return judge_figures.NO_VERDICTS
    first_share = figures["first_share"]
    position = "first" if first_share > 1 - first_share else "second"
    share = max(first_share, 1 - first_share)
    if share > judge_figures.ALWAYS:
        return f"It always answers {position}: {_use_of_averages(averaged)}"
    if share > judge_figures.BIASED:
        return (
            f"It prefers the message shown {position} ({share:.0%}): {_use_of_averages(averaged)}"
        )
    if averaged >= _OF_USE:
        return "Its labels are of use, in one order too."
    if averaged >= _OF_SOME_USE:
        return f"Its labels are of some use, {averaged:.0%} are right: a larger model would be right more often."
    return f"Its labels are of no use, {averaged:.0%} are right: take a larger model, or another prompt."


def _use_of_averages(averaged: float) -> str:
    """What to do with a judge that answers by position, by the share of right averages of both
    orders.
    """
    if averaged >= _OF_USE:
        return "ask both orders (--config.orders=both), whose averages are of use."
    if averaged >= _OF_SOME_USE:
        return f"ask both orders (--config.orders=both), whose averages are right in {averaged:.0%} of the pairs, or a larger model."
    return (
        f"its labels are of no use, averages of both orders are right in {averaged:.0%} of the pairs. Take a larger model, or another "
        "prompt."
    )
