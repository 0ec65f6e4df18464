"""What an annotator's answers say about the annotator: position bias, mass, agreement, and whether
its labels are of use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.verdicts import FIRST, PAIR, SECOND, TIE, UNKNOWN
from motif_jax.motif.annotation import labels as label_math
from motif_jax.motif.annotation.questions import QuestionList
from motif_jax.motif.annotation.store import StoredAnswer

# Shares beyond which `advice` names a fault. An unbiased judge says "first" in half of its decided
# answers, since the order is drawn; a judge that tosses a coin agrees with itself on the reversed
# pair in half of them.
ALWAYS = 0.95
BIASED = 0.65
_INCONSISTENT = 0.6
HALF = 0.5
# Standard errors from one half above which a share is a bias: of 20 decided answers an unbiased
# judge gives more than 65 % to one side in one annotation of nine.
_SIGNIFICANT = 1.96
# Fewer decided answers say nothing of a share.
_ENOUGH = 20
# A caption stands out where its mean probability lies at least so far from one half; one with fewer
# comparisons may by chance.
_APART = 0.25
_OFTEN = 5
# What to do where more than half of the answers have no verdict.
NO_VERDICTS = "Most answers have no verdict: look at their texts in config.store_dir."
# Probabilities below this are as good as 0, whose logarithm is none.
_LEAST_PROBABILITY = 1e-9


class RankedCaption(NamedTuple):
    """A caption, the mean probability that it is preferred (half of a tie's included), and the
    number of its comparisons.
    """

    caption: str
    probability: float
    comparisons: int


def answer_figures(answers: Sequence[StoredAnswer | None]) -> dict[str, float]:
    """Figures of answers about pairs as they were asked; FIRST is the caption shown first.

    Returns the number of known `answers`, and of `decided` ones (FIRST or SECOND); `first_share` of
    FIRST among these; `tie_share`; `unknown_share`; and `mass`, the mean probability of the
    verdicts together, where answers have it.
    """
    stored = [answer for answer in answers if answer is not None]
    verdicts = np.array([answer.label for answer in stored], np.int8)
    decided = int(np.isin(verdicts, (FIRST, SECOND)).sum())
    known = int((verdicts != UNKNOWN).sum())
    figures = {
        "answers": known,
        "decided": decided,
        "first_share": _share(int((verdicts == FIRST).sum()), decided),
        "tie_share": _share(int((verdicts == TIE).sum()), known),
        "unknown_share": _share(len(stored) - known, len(stored)),
    }
    masses = [answer.mass for answer in stored if answer.mass is not None]
    return figures | ({"mass": sum(masses) / len(masses)} if masses else {})


def percent(share: float, decimals: int = 0) -> str:
    """A share in per cent, 'n/a' for one of nothing."""
    return f"{share:.{decimals}%}" if math.isfinite(share) else "n/a"


def _share(count: int, total: int) -> float:
    return count / total if total else math.nan


def median_log_odds(answers: Iterable[StoredAnswer | None]) -> float:
    """The median of log P(first) / P(second) of answers as asked: the position bias, in nats; 0
    without probabilities.

    Where the order of each pair is drawn, or both are asked, the texts themselves add nothing to
    it.
    """
    odds = [
        _log_odds(answer.probabilities)
        for answer in answers
        if answer is not None and _is_soft(answer)
    ]
    return float(np.median(odds)) if odds else 0.0


def corrected(answers: Sequence[StoredAnswer | None]) -> list[StoredAnswer | None]:
    """Answers whose log-odds of first against second are reduced by their median; P(tie) stays, and
    labels follow.
    """
    bias = median_log_odds(answers)
    return [
        _without(answer, bias) if answer is not None and _is_soft(answer) else answer
        for answer in answers
    ]


def _is_soft(answer: StoredAnswer) -> bool:
    """Whether an answer has probabilities of its own.

    Shards have certain ones, of 0 and 1, for answers without. Those of a model may be certain, too,
    but have a mass.
    """
    if answer.label == UNKNOWN or answer.probabilities is None:
        return False
    return answer.mass is not None or max(answer.probabilities) < 1.0


def _log_odds(probabilities: Any) -> float:
    first, second = (max(probabilities[label], _LEAST_PROBABILITY) for label in (FIRST, SECOND))
    return math.log(first / second)


def _without(answer: StoredAnswer, bias: float) -> StoredAnswer:
    p = answer.probabilities
    assert p is not None
    # The logistic of the log-odds less the bias, on what the tie leaves.
    first = 1.0 / (1.0 + math.exp(bias - _log_odds(p)))
    decided = p[FIRST] + p[SECOND]
    shares = (decided * first, decided * (1.0 - first), p[TIE])
    label = int(label_math.most_probable(np.array([shares]))[0])
    return answer._replace(label=label, probabilities=shares)


def agreement(labels: np.ndarray, others: np.ndarray) -> dict[str, float]:
    """Agreement of two annotators' labels int [pairs].

    Returns `pairs` that both know, `equal`, their share of equal labels, Cohen's `kappa`, and
    `equal_decided`, the share among those that neither calls a tie.
    """
    counts = label_math.confusion(labels, others)
    decided = counts[:TIE, :TIE]
    return {
        "pairs": int(counts.sum()),
        "equal": _share(int(np.trace(counts)), int(counts.sum())),
        "kappa": label_math.cohen_kappa(counts),
        "equal_decided": _share(int(np.trace(decided)), int(decided.sum())),
    }


def rank_captions(
    pairs: Iterable[tuple[str, str]], probabilities: np.ndarray
) -> list[RankedCaption]:
    """The distinct captions of pairs, the best first, by probabilities float [pairs, 3]; NaN and
    equal captions do not count.

    Captions are ordered by the mean probability with one win and one loss added, so that few
    comparisons do not lead.
    """
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for (first, second), p in zip(pairs, probabilities, strict=True):
        if first == second or np.isnan(p[FIRST]):
            continue
        for caption, won in ((first, p[FIRST]), (second, p[SECOND])):
            sums[caption] = sums.get(caption, 0.0) + float(won + p[TIE] / 2)
            counts[caption] = counts.get(caption, 0) + 1
    # (sum + 1) / (comparisons + 2) is the mean of the probability under a uniform prior.
    order = sorted(
        sums, key=lambda caption: (-(sums[caption] + 1) / (counts[caption] + 2), caption)
    )
    return [
        RankedCaption(caption, sums[caption] / counts[caption], counts[caption])
        for caption in order
    ]


def describe_order(ranked: Sequence[RankedCaption], count: int = 5) -> str:
    """Lines: the captions that are preferred most and least, and where the empty one stands; one
    line where none was compared.
    """
    if not ranked:
        return "no two captions have a verdict"
    best = ranked[:count]
    worst = ranked[-count:][::-1]

    def listed(captions: Sequence[RankedCaption]) -> str:
        return ", ".join(
            f"{ranked.caption!r} {ranked.probability:.2f} ({ranked.comparisons:,})"
            for ranked in captions
        )

    lines = [
        f"preferred most (mean probability, comparisons): {listed(best)}",
        f"preferred least: {listed(worst)}",
        place_of_silence(ranked),
    ]
    return "\n".join(line for line in lines if line)


def place_of_silence(ranked: Sequence[RankedCaption]) -> str:
    """A line: how many captions the judge prefers to the empty one, and its neighbours in the
    judge's order; '' without an empty caption.
    """
    captions = [ranked_caption.caption for ranked_caption in ranked]
    if "" not in captions:
        return ""
    place = captions.index("")
    line = f"{place:,} of {len(captions) - 1:,} captions stand above the empty one"
    if place > 0:
        line += f", the nearest {captions[place - 1]!r}"
    if place < len(captions) - 1:
        line += f"; the nearest below it is {captions[place + 1]!r}"
    elif place > 0:
        line += (
            ". None stands below: if one of them is bad news, the judge likes whatever happens, and "
            "--config.probe_pairs=FILE asks it such pairs"
        )
    return line


def advice(
    figures: Mapping[str, float],
    consistent: float | None = None,
    ranked: Sequence[RankedCaption] = (),
) -> str:
    """One or two sentences: what speaks against labels with these figures, and what to do.

    That a judge agrees with itself does not make it right: where nothing speaks against the labels,
    a reader is sent to the order of the captions.

    Args:
      figures: as of `answer_figures`.
      consistent: the share of pairs with the same winner in both orders, None if one was asked, NaN
          where no pair was answered in both.
      ranked: as of `rank_captions`.
    """
    # From what makes labels useless to what only asks for care.
    if not figures["answers"]:
        return "No question was answered: these labels say nothing."
    if figures["unknown_share"] > HALF:
        return NO_VERDICTS
    if figures.get("mass", 1.0) < HALF:
        return (
            f"The verdicts have {figures['mass']:.0%} of the probability: the model would say something else, so choose another "
            "prompt."
        )
    if figures["tie_share"] > ALWAYS:
        return "Nearly every answer is a tie: these labels give no goal, choose another prompt or a larger model."
    if figures["decided"] < _ENOUGH:
        return f"{figures['decided']:.0f} decided answers are too few to judge the judge."
    against = _advice_on_position(figures["first_share"], int(figures["decided"]), consistent)
    if against:
        return against
    agreement = "No position bias" if consistent is None else "Both orders agree on most pairs"
    compared = [caption for caption in ranked if caption.comparisons >= _OFTEN]
    probabilities = [caption.probability for caption in compared]
    if probabilities and HALF - _APART < min(probabilities) <= max(probabilities) < HALF + _APART:
        return (
            f"{agreement}, but no caption stands out: the mean probabilities of those with {_OFTEN} comparisons or more lie between "
            f"{min(probabilities):.2f} and {max(probabilities):.2f}. Learn the probabilities (labels.soft=True of train_reward), see "
            "whether they are right with --config.probe=True, or take a larger model."
        )
    return f"{agreement}. Whether the order of the captions is the goal's, they tell: look at both ends and at the empty one."


def _advice_on_position(first_share: float, decided: int, consistent: float | None) -> str:
    """What speaks against labels by the order in which captions were shown; '' where nothing
    does.
    """
    position = "first" if first_share > HALF else "second"
    share = max(first_share, 1 - first_share)
    if consistent is None:
        if share > ALWAYS:
            return (
                f"It always answers {position}: these labels are of no use. Ask both orders (--config.orders=both), or a larger "
                "model."
            )
        if share > BIASED:
            standard_error = 0.5 / math.sqrt(decided)
            if share - HALF <= _SIGNIFICANT * standard_error:
                return (
                    f"It says {position} in {share:.0%} of {decided} decided answers, too few to call it a bias: more pairs, or "
                    "both orders (--config.orders=both), would tell."
                )
            return f"It prefers the message shown {position} ({share:.0%}): ask both orders (--config.orders=both)."
        return ""
    if math.isnan(consistent):
        return (
            "No pair was answered in both orders, so nothing was averaged: look at the answers in "
            "config.store_dir."
        )
    if share > ALWAYS:
        return (
            f"It always answers {position}: only the averages of both orders say anything. See whether they are right with "
            "--config.probe=True, or take a larger model."
        )
    if consistent < _INCONSISTENT:
        return (
            f"{consistent:.0%} of the pairs have the same winner in both orders: learn the averaged probabilities (labels.soft=True of "
            "train_reward), see whether they are right with --config.probe=True, or take a larger model."
        )
    return ""


def consistency(questions: QuestionList, answers: Sequence[StoredAnswer | None]) -> float | None:
    """The share of pairs with the same winner (or a tie) in both orders; None if each was asked in
    one order.

    NaN where no pair was answered in both.
    """
    if questions.question_indices.shape[1] == 1:
        return None
    verdicts = np.array(
        [UNKNOWN if answer is None else answer.label for answer in answers] + [UNKNOWN], np.int8
    )
    was_asked = questions.question_indices[:, 0] >= 0
    first, second = questions.question_indices[was_asked].T
    return label_math.position_bias(verdicts[first], verdicts[second])["consistent"]


def certain(answer: StoredAnswer) -> tuple[float, ...]:
    """The probabilities of an answer, one-hot where it has none."""
    return answer.probabilities if answer.probabilities is not None else PAIR.certain(answer.label)
