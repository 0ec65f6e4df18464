"""The end of an annotation: merges its finished shards into labels, and says how the annotator
judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.distinct import distinct_rows
from motif_jax.core.files import atomic_write_text
from motif_jax.motif.annotation import answers_page, judge_figures, shards
from motif_jax.motif.annotation.annotator import Annotator
from motif_jax.motif.annotation.captions import dataset_captions
from motif_jax.motif.annotation.config import AnnotationConfig
from motif_jax.motif.annotation.judge_figures import percent
from motif_jax.motif.annotation.labels import counts
from motif_jax.motif.annotation.questions import QuestionList
from motif_jax.motif.annotation.store import StoredAnswer
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.outcomes import count_outcomes, describe

# Captions at each end of the judge's order that the summary keeps.
_CAPTIONS_KEPT = 20


class Merge(NamedTuple):
    """The labels of all shards, and the figures of them."""

    labels: shards.PairLabels
    answers: list[StoredAnswer | None]  # by the index of the question, as they were given
    figures: dict[str, Any]  # of a judge that reads captions; {} for other annotators
    ranked: list[
        judge_figures.RankedCaption
    ]  # from the most to the least preferred; [] where there are no figures
    reference_labels: np.ndarray | None  # int8 [pairs], those of `config.agreement_with`
    summary: dict[str, Any]  # an object that JSON can hold


def merge(
    config: AnnotationConfig,
    annotator: Annotator,
    annotation: shards.Annotation,
    questions: QuestionList,
    manifest: Mapping[str, Any],
    dataset: PairsDataset,
) -> Merge | None:
    """Writes the labels if all shards are finished; None where some are not, after a line that
    names them.

    The lock of `merging` is for two commands that finish their shards at the same time: both merge,
    one after the other, and write the same labels.
    """
    with annotation.merging():
        answers, unfinished = annotation.read_answers(
            questions, config.num_shards, dict(manifest), config.attempts
        )
        if unfinished:
            print(_waiting_line(annotation.name, unfinished, config.num_shards), flush=True)
            return None

        labels = shards.labels_of_pairs(
            questions, judge_figures.corrected(answers) if config.correct_position_bias else answers
        )
        ranked = []
        figures = {}
        if annotator.reads_items:
            captions = dataset_captions(
                dataset.data, config.captions.messages, config.captions.status
            )
            ranked = judge_figures.rank_captions(captions, labels.probabilities)
            figures = _judge_figures(questions, answers, ranked)
        reference_labels = None
        if config.agreement_with:
            reference_labels = dataset.preference(config.agreement_with)

        summary: dict[str, Any] = {
            "pairs": dataset.num_pairs,
            "questions": len(answers),
            **counts(labels.labels),
            "questions_per_pair": len(answers) / dataset.num_pairs,
            "correct_position_bias": config.correct_position_bias,
        }
        if labels.position_bias is not None:
            summary["position_bias"] = labels.position_bias
        if reference_labels is not None:
            # Equal captions are a tie without a question, to every judge of captions: where they
            # are half of the pairs, two judges that toss a coin would have a kappa of 0.6.
            was_asked = questions.question_indices[:, 0] >= 0
            agreement = judge_figures.agreement(
                labels.labels[was_asked], reference_labels[was_asked]
            )
            summary["agreement"] = {"with": config.agreement_with, **agreement}
        if figures:
            summary["judge"] = {**figures, "captions": _first_and_last(ranked)}
        annotation.write(labels, summary)
    return Merge(labels, answers, figures, ranked, reference_labels, summary)


def report(
    config: AnnotationConfig,
    workdir: Path,
    annotator: Annotator,
    annotation: shards.Annotation,
    questions: QuestionList,
    dataset: PairsDataset,
    merged: Merge,
) -> None:
    """Prints what the labels say, and writes the page of the most frequent pairs for a judge that
    reads captions.
    """
    print(f"{annotation.preference_path}: {_sentence(merged.summary)}", flush=True)
    if merged.figures:
        print(
            f"{judge_figures.describe_order(merged.ranked)}\n{merged.figures['advice']}", flush=True
        )
        # Captions once more: the iterator of `merge` is used up, a list would hold a million texts.
        pairs = answers_page.judged_pairs(
            dataset_captions(dataset.data, config.captions.messages, config.captions.status),
            questions,
            merged.answers,
            merged.labels,
            merged.reference_labels,
        )
        question = annotator.preview(questions.questions[0]).text if questions.questions else ""
        judge = answers_page.JudgeSummary(
            annotation.name, merged.figures, merged.ranked, question, config.agreement_with
        )
        page = workdir / answers_page.PAGE
        atomic_write_text(page, answers_page.render(pairs, judge))
        print(f"pair by pair: {page}", flush=True)
    if annotator.reads_items and config.captions.messages:
        messages, ids = distinct_rows(dataset.data["message"].reshape(-1, 256))
        ids = ids.reshape(dataset.num_pairs, 2, dataset.length)
        outcomes = count_outcomes(ids, merged.labels.labels, len(messages))
        print(describe(outcomes, messages), flush=True)


def _waiting_line(name: str, unfinished: list[int], count: int) -> str:
    """Which of `count` shards are missing, the first eight by their index."""
    indices = [str(index) for index in unfinished[:8]]
    if len(unfinished) > 8:
        indices.append("...")
    return f"{name}: waiting for {len(unfinished)} of {count} shards ({', '.join(indices)})"


def _judge_figures(
    questions: QuestionList,
    answers: list[StoredAnswer | None],
    ranked: Sequence[judge_figures.RankedCaption],
) -> dict[str, Any]:
    """Figures of a judge that reads captions, and what speaks against its labels.

    They judge the `answers` as they were given, before `correct_position_bias`.
    """
    figures: dict[str, Any] = judge_figures.answer_figures(answers)
    consistent = judge_figures.consistency(questions, answers)
    if consistent is not None:
        figures["consistent"] = consistent
    figures["median_log_odds"] = judge_figures.median_log_odds(answers)
    return {**figures, "advice": judge_figures.advice(figures, consistent, ranked)}


def _first_and_last(ranked: list[judge_figures.RankedCaption]) -> list[dict[str, Any]]:
    """The captions that are preferred most and least, in the judge's order."""
    if len(ranked) > 2 * _CAPTIONS_KEPT:
        ranked = ranked[:_CAPTIONS_KEPT] + ranked[-_CAPTIONS_KEPT:]
    return [caption._asdict() for caption in ranked]


def _sentence(summary: dict[str, Any]) -> str:
    text = (
        f"{summary['pairs']:,} pairs, {summary['questions']:,} distinct questions; "
        f"{summary['first']:,} first, {summary['second']:,} second, {summary['tie']:,} tie, {summary['unknown']:,} unknown"
    )
    if "position_bias" in summary:
        bias = summary["position_bias"]
        text += f"; asked both ways {percent(bias['consistent'], 1)} agree, the caption shown first wins {percent(bias['first_share'], 1)}"
    if "agreement" in summary:
        agreement = summary["agreement"]
        kappa = agreement["kappa"]
        kappa_in_words = f"{kappa:.2f}" if math.isfinite(kappa) else "n/a"
        text += f"; {percent(agreement['equal'], 1)} equal to {agreement['with']}, kappa {kappa_in_words}"
    return text
