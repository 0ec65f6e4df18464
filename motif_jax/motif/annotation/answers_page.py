"""The page of an annotator's answers: how it judges, the captions in its order, and what it said
about each pair of them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.verdicts import FIRST, SECOND, TIE, UNKNOWN
from motif_jax.display import charts, html, page
from motif_jax.display.html import TableCell, message_cell, number_cell
from motif_jax.display.page import Fold, Section, Table
from motif_jax.motif.annotation import judge_figures
from motif_jax.motif.annotation import labels as label_math
from motif_jax.motif.annotation.judge_figures import RankedCaption
from motif_jax.motif.annotation.labels import PairLabels
from motif_jax.motif.annotation.questions import QuestionList
from motif_jax.motif.annotation.store import StoredAnswer

PAGE = "answers.html"
# Pairs on a page, those that the dataset has most often; a browser takes seconds with more.
MAX_PAIRS = 2000
_BINS = 40
# Rows of a table before "show all" is pressed.
_SHOWN = 50
_SURENESS_NOTE = "The probability of the winner of A and B, of each pair. Near 0.5 the labels say little, below it a tie is more probable."
_ORDERS_NOTE = "A dot is a pair. On the dashed line its order makes no difference; far below it, the caption shown first wins whatever it says."
_VERDICTS = {FIRST: "A", SECOND: "B", TIE: "tie", UNKNOWN: "no verdict"}
_AGREEMENT = {True: "agree", False: "disagree", None: ""}


class JudgedPair(NamedTuple):
    """Two captions, and what the annotator said about them.

    Attributes:
      captions: A and B, in the order of the dataset's first such pair.
      label: the pair's label.
      probabilities: of A, B and a tie, the mean over the orders that were asked; NaN without a
          verdict.
      shown_first: the probability of A where A was shown first; NaN: not asked, or no verdict.
      shown_second: the same where B was shown first.
      orders_agree: whether both orders have the same winner, or are ties; None unless both have a
          verdict.
      occurrences: how many pairs of the dataset have these captions, in any order.
      reference_label: the label of another annotator, None if none is compared.
    """

    captions: tuple[str, str]
    label: int
    probabilities: tuple[float, ...]
    shown_first: float
    shown_second: float
    orders_agree: bool | None
    occurrences: int
    reference_label: int | None


class JudgeSummary(NamedTuple):
    """What the page says about the judge as a whole.

    Attributes:
      name: of the annotation.
      figures: of `judge_figures.answer_figures`, with `advice` and, if both orders were asked,
          `consistent`.
      ranked: the captions in the judge's order.
      question: a question as the annotator reads it.
      reference: the name of the annotation that is compared; '' for none.
    """

    name: str
    figures: Mapping[str, Any]
    ranked: Sequence[RankedCaption]
    question: str
    reference: str = ""


def judged_pairs(
    captions: Iterable[tuple[str, str]],
    questions: QuestionList,
    answers: Sequence[StoredAnswer | None],
    merged: PairLabels,
    reference_labels: np.ndarray | None = None,
) -> list[JudgedPair]:
    """The distinct pairs of captions of a dataset, the most frequent first; equal captions are left
    out, nobody was asked.

    Args:
      captions: of each pair of the dataset.
      answers: to `questions`, in their order.
      reference_labels: another annotator's labels, int [pairs].
    """
    pairs: dict[tuple[str, str], JudgedPair] = {}
    for index, (first, second) in enumerate(captions):
        if first == second:
            continue
        # A pair and its reverse are one, in the order that came first.
        key = (second, first) if (second, first) in pairs else (first, second)
        if key in pairs:
            pair = pairs[key]._replace(occurrences=pairs[key].occurrences + 1)
            if key != (first, second):
                pair = _with_reverse(pair, _by_order(questions, answers, index, is_reversed=True))
            pairs[key] = pair
            continue
        by_order = _by_order(questions, answers, index)
        # One answer for each order that was asked and answered.
        winners = [label for label, _ in by_order.values()]
        pairs[key] = JudgedPair(
            captions=(first, second),
            label=int(merged.labels[index]),
            probabilities=tuple(map(float, merged.probabilities[index])),
            shown_first=by_order[False][1] if False in by_order else math.nan,
            shown_second=by_order[True][1] if True in by_order else math.nan,
            orders_agree=winners[0] == winners[1] if len(winners) == 2 else None,
            occurrences=1,
            reference_label=None if reference_labels is None else int(reference_labels[index]),
        )
    return sorted(pairs.values(), key=lambda pair: -pair.occurrences)


def _with_reverse(pair: JudgedPair, by_order: dict[bool, tuple[int, float]]) -> JudgedPair:
    """The pair with what was answered about its reverse, where that was a question of its own
    (orders=given).
    """
    if True not in by_order or not math.isnan(pair.shown_second):
        return pair
    label, probability = by_order[True]
    is_answered = not math.isnan(pair.shown_first)
    return pair._replace(
        shown_second=probability, orders_agree=label == pair.label if is_answered else None
    )


def _by_order(
    questions: QuestionList,
    answers: Sequence[StoredAnswer | None],
    index: int,
    is_reversed: bool = False,
) -> dict[bool, tuple[int, float]]:
    """By whether a question showed the pair's first caption second: the pair's label by it, and the
    first caption's probability.

    Questions without a verdict are left out. Of a pair that `is_reversed` the other caption is
    called the first.
    """
    by_order = {}
    for question, was_swapped in zip(
        questions.question_indices[index], questions.swapped[index], strict=True
    ):
        swapped = bool(was_swapped) != is_reversed
        answer = answers[question]
        if answer is None or answer.label == UNKNOWN:
            continue
        label = int(label_math.TURNED[answer.label]) if swapped else answer.label
        by_order[bool(swapped)] = (
            label,
            judge_figures.certain(answer)[SECOND if swapped else FIRST],
        )
    return by_order


def render(pairs: Sequence[JudgedPair], summary: JudgeSummary) -> str:
    """The page, self-contained."""
    sections = [
        Section("The judge", "judge", _overview(pairs, summary)),
        Section(
            "Captions in the judge's order",
            "captions",
            [_captions_table(summary.ranked)],
            _captions_note(summary.ranked),
        ),
        Section(
            "Pair by pair",
            "pairs",
            [_pairs_table(pairs, summary.reference)],
            _pairs_note(pairs, summary.reference),
        ),
    ]
    return page.render(
        f"What {summary.name} says", f"{len(pairs):,} different pairs of captions", sections
    )


def _overview(pairs: Sequence[JudgedPair], summary: JudgeSummary) -> list[Any]:
    figures = summary.figures
    tiles = [
        (
            "answers",
            f"{figures['answers']:,}",
            f"{_percent(figures['unknown_share'])} without a verdict",
        ),
        (
            "says first",
            _percent(figures["first_share"]),
            "of the decided answers; 50 % without bias",
        ),
        ("ties", _percent(figures["tie_share"]), "of the answers"),
    ]
    if "consistent" in figures:
        tiles.append(
            (
                "orders agree",
                _percent(figures["consistent"]),
                "of the pairs have the same winner in both",
            )
        )
    if "mass" in figures:
        tiles.append(("mass", _percent(figures["mass"]), "of the probability is on the verdicts"))
    if summary.reference:
        known = [pair for pair in pairs if UNKNOWN not in (pair.label, pair.reference_label)]
        equal = sum(pair.label == pair.reference_label for pair in known)
        tiles.append(
            (
                f"as {summary.reference}",
                _percent(equal / max(1, len(known))),
                "of the different pairs that both know",
            )
        )
    parts: list[Any] = [html.tiles(tiles), html.verdict(figures["advice"])]
    parts.append(_charts(pairs))
    return [*parts, Fold("A question as it was asked", [f"<pre>{escape(summary.question)}</pre>"])]


def _charts(pairs: Sequence[JudgedPair]) -> str:
    # The environment of vLLM has no matplotlib.
    if importlib.util.find_spec("matplotlib") is None:
        return html.nothing("no charts: matplotlib is not installed where this page was written")
    figures = [html.figure("How sure it is", _sureness_chart(pairs), _SURENESS_NOTE)]
    if any(pair.orders_agree is not None for pair in pairs):
        figures.append(html.figure("Both orders of a pair", _orders_chart(pairs), _ORDERS_NOTE))
    return html.grid(*figures)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if math.isfinite(share) else "n/a"


def _sureness_chart(pairs: Sequence[JudgedPair]) -> str:
    """Bars of the probability of the winner of A and B, as inline SVG."""
    winners = np.array(
        [max(pair.probabilities[FIRST], pair.probabilities[SECOND]) for pair in pairs]
    )
    shares, edges = np.histogram(winners[np.isfinite(winners)], _BINS, (0.0, 1.0))
    figure, axes = charts.new_figure("probability of the winner", "pairs")
    for number, left, right in zip(shares.tolist(), edges[:-1], edges[1:], strict=True):
        (bar,) = axes.bar(left, number, 0.9 * (right - left), align="edge", color=charts.COLOURS[0])
        charts.set_title(bar, f"{left:.2f} to {right:.2f}: {number:,} pairs")
    return charts.inline(figure, "how sure the judge is")


def _orders_chart(pairs: Sequence[JudgedPair]) -> str:
    """The probability of A where it was shown first, against that where it was shown second, as
    inline SVG.
    """
    shown = pairs[:MAX_PAIRS]
    figure, axes = charts.new_figure(
        "probability of A, shown first", "probability of A, shown second"
    )
    axes.plot([0, 1], [0, 1], "--", color="#b0b0b0", linewidth=1)
    dots = axes.scatter(
        [pair.shown_first for pair in shown],
        [pair.shown_second for pair in shown],
        s=6,
        color=charts.COLOURS[0],
    )
    dots.set_urls([f"{charts.TITLE}A: {pair.captions[0]}  B: {pair.captions[1]}" for pair in shown])
    return charts.inline(figure, "both orders of a pair")


def _captions_note(ranked: Sequence[RankedCaption]) -> str:
    note = "The mean probability that a caption is preferred, half of a tie's included. One that wins each of its comparisons by a little has little more than 0.5."
    silence = judge_figures.place_of_silence(ranked)
    return f"{note} {silence[:1].upper()}{silence[1:]}." if silence else note


def _captions_table(ranked: Sequence[RankedCaption]) -> Table:
    rows = [
        [
            message_cell(caption.caption),
            number_cell(caption.probability, ".2f"),
            number_cell(caption.comparisons, ",d"),
        ]
        for caption in ranked[:MAX_PAIRS]
    ]
    return Table(
        "ranked", ["caption", "mean probability", "comparisons"], rows, search=True, limit=_SHOWN
    )


def _pairs_table(pairs: Sequence[JudgedPair], reference: str) -> Table:
    header = [
        "A",
        "B",
        "verdict",
        "A",
        "B",
        "tie",
        "A, shown first",
        "A, shown second",
        "orders",
        "pairs",
    ]
    rows = []
    for pair in pairs[:MAX_PAIRS]:
        cells = [message_cell(caption) for caption in pair.captions]
        cells.append(TableCell(_VERDICTS[pair.label]))
        cells += [number_cell(probability, ".2f") for probability in pair.probabilities]
        cells += [number_cell(pair.shown_first, ".2f"), number_cell(pair.shown_second, ".2f")]
        cells += [TableCell(_AGREEMENT[pair.orders_agree]), number_cell(pair.occurrences, ",d")]
        if pair.reference_label is not None:
            differs = "" if pair.reference_label == pair.label else "differs"
            cells.append(TableCell(_VERDICTS[pair.reference_label], note=differs))
        rows.append(cells)
    if reference:
        header.append(reference)
    return Table("judged", header, rows, search=True, limit=_SHOWN)


def _pairs_note(pairs: Sequence[JudgedPair], reference: str) -> str:
    note = "Probabilities are means over the orders that were asked. "
    if len(pairs) > MAX_PAIRS:
        note = f"The most frequent pairs come first; those after row {MAX_PAIRS:,} are left out. {note}"
    words = "disagree, differs" if reference else "disagree"
    return f"{note}A click on a heading sorts. The search finds captions, and the words {words}."
