"""Asks an annotator about a dataset's pairs and writes preference/NAME.npy."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import interruption, run_folder
from motif_jax.core.distinct import distinct_rows
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, atomic_write_text
from motif_jax.core.locks import FolderLock
from motif_jax.core.progress import Progress
from motif_jax.motif.annotation import answers_page, judge_figures, judge_probes, shards
from motif_jax.motif.annotation.annotator import (
    Annotator,
    Question,
    check_annotator,
    check_keys_of_others,
    make_annotator,
    with_annotator_defaults,
)
from motif_jax.motif.annotation.captions import dataset_captions
from motif_jax.motif.annotation.chat import CUT
from motif_jax.motif.annotation.config import AnnotationConfig
from motif_jax.motif.annotation.dry_run import report_dry_run
from motif_jax.motif.annotation.judge_figures import percent
from motif_jax.motif.annotation.labels import PairLabels, counts, labels_of_pairs
from motif_jax.motif.annotation.parsing import UNFINISHED
from motif_jax.motif.annotation.questions import (
    QuestionHasher,
    QuestionList,
    caption_questions,
    pair_questions,
)
from motif_jax.motif.annotation.session import AnnotationSession
from motif_jax.motif.annotation.store import AnswerStore, StoredAnswer, is_settled
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.outcomes import count_outcomes, describe
from motif_jax.schema import read_open_section

# Captions at each end of the judge's order that the summary keeps.
_CAPTIONS_KEPT = 20


def check(config_tree: ConfigDict, workdir: Path) -> None:
    """Raises UserError where the config, the dataset or the annotator cannot be used; asks
    nothing.
    """
    run_folder.check_identity(workdir, config_tree)
    config = _annotation_config(config_tree)
    in_range = 0 <= config.shard_index < config.num_shards
    checks.require_key(
        config, "shard_index", in_range, f"from 0 to num_shards - 1 = {config.num_shards - 1}"
    )
    shows_something = config.captions.messages or config.captions.status
    checks.require(shows_something, "captions.messages", False, "True unless captions.status is")
    if config.name:
        shards.check_name(config.name)
    # Probes are texts of their own.
    if not config.probe:
        _open_dataset(config)
    check_annotator(config)
    check_keys_of_others(config)
    _check_measures(config)


def run(config_tree: ConfigDict, workdir: Path) -> int:
    """Annotates one shard, and merges the shards when all are finished."""
    config = _annotation_config(config_tree)
    if config.probe:
        annotator = make_annotator(config)
        with run_folder.opened(workdir, config_tree):
            return _probe(config, workdir, annotator)
    dataset = _open_dataset(config)
    annotator = make_annotator(config, dataset=dataset)
    questions = _list_questions(config, dataset, annotator)
    print(_game_warning(dataset, annotator), end="", flush=True)
    # Before the run folder is opened, so that a dry run leaves none.
    if config.dry_run:
        report_dry_run(config, workdir, annotator, questions, AnswerStore(config.store_dir))
        return 0
    with run_folder.opened(workdir, config_tree):
        return _annotate(config, workdir, dataset, annotator, questions)


def _game_warning(dataset: PairsDataset, annotator: Annotator) -> str:
    """A line where the annotator judges another game than the dataset's as NetHack; '' if not."""
    environment = dataset.meta.get("config", {}).get("environment", {}).get("name", "")
    # NetHackScore-v1, MiniHack-Room-5x5-v0, gym:NetHackScore-v0; the published dataset names none.
    is_nethack = not environment or "hack" in environment.lower()
    if is_nethack or not annotator.nethack_key:
        return ""
    return (
        f"warning: this judge's questions or rules are about NetHack, and the dataset is of {environment}: give questions or rules "
        f"of that game by {annotator.nethack_key} (docs/annotation.md)\n"
    )


def _check_measures(config: AnnotationConfig) -> None:
    """Raises UserError where a measure of the annotator is wanted that this config cannot give."""
    if config.probe:
        judge_probes.read(config.probe_pairs)
    if config.agreement_with:
        PairsDataset.open(config.dataset_dir).preference(config.agreement_with)
    if config.correct_position_bias:
        used = with_annotator_defaults(config)
        can_correct = used.answer.mode == "soft" and used.orders != "given"
        allowed = "False unless answer.mode=soft and orders=once or both"
        checks.require_key(config, "correct_position_bias", can_correct, allowed)


def _probe(config: AnnotationConfig, workdir: Path, annotator: Annotator) -> int:
    """Asks pairs with a known answer; prints and writes how many are right."""
    pairs = judge_probes.read(config.probe_pairs)
    with AnnotationSession(annotator, config.store_dir, attempts=config.attempts) as session:
        figures = judge_probes.ask(session, pairs)
        telemetry = session.summary()

    report = {"pairs": config.probe_pairs, **figures}
    if telemetry["asked"]:
        # Answers from the store took no time, so that there is no rate without a question.
        report["questions_per_second"] = telemetry["questions_per_second"]
    atomic_write_json(workdir / "probe.json", report)
    print(judge_probes.describe(figures), flush=True)
    return 0


def _annotation_config(config_tree: ConfigDict) -> AnnotationConfig:
    """The config's values; an annotator from outside the package may have keys of its own."""
    return read_open_section(AnnotationConfig, config_tree)


def _open_dataset(config: AnnotationConfig) -> PairsDataset:
    arrays = ("message", "blstats") if config.captions.status else ("message",)
    return PairsDataset.open(config.dataset_dir, need=arrays)


def _list_questions(
    config: AnnotationConfig, dataset: PairsDataset, annotator: Annotator
) -> QuestionList:
    """The distinct questions of the dataset: captions, or the pairs' numbers for an annotator that
    reads no texts.
    """
    hasher = QuestionHasher(annotator.identity)
    if not annotator.reads_items:
        return pair_questions(dataset.num_pairs, hasher)
    captions = dataset_captions(dataset.data, config.captions.messages, config.captions.status)
    orders = with_annotator_defaults(config).orders
    return caption_questions(captions, dataset.num_pairs, hasher, orders)


def _manifest(
    config: AnnotationConfig,
    name: str,
    dataset: PairsDataset,
    annotator: Annotator,
    questions: QuestionList,
) -> dict[str, Any]:
    """All that the answers depend on; shards whose manifests differ in it are not merged
    (`shards.BINDING`).
    """
    subject: dict[str, Any] = {"about": "pairs"}
    if annotator.reads_items:
        subject = {
            "about": "captions",
            "orders": with_annotator_defaults(config).orders,
            "captions": vars(config.captions),
        }
    return {
        "format": shards.MANIFEST_FORMAT,
        "name": name,
        # Through JSON, as it is compared with manifests that were read from files, where tuples are
        # lists.
        "annotator": json.loads(json.dumps(dict(annotator.identity))),
        "dataset": {
            "pairs": dataset.num_pairs,
            "length": dataset.length,
            "content_hash": dataset.content_hash(),
        },
        "questions": {**subject, "count": len(questions.questions), "digest": questions.digest()},
        "versions": run_folder.versions(),
    }


def _annotate(
    config: AnnotationConfig,
    workdir: Path,
    dataset: PairsDataset,
    annotator: Annotator,
    questions: QuestionList,
) -> int:
    """Asks the questions of this command's shard; merges the labels if it was the last. Returns the
    exit status.
    """
    name = config.name or annotator.short_name
    # `check` has seen a name of the config; the default one may be that of a class from outside.
    shards.check_name(name)
    manifest = _manifest(config, name, dataset, annotator, questions)
    annotation = shards.Annotation(dataset.folder, name, manifest)
    index = config.shard_index
    count = config.num_shards
    own_questions = questions.shard(index, count)
    summary = {
        "name": name,
        "annotator": config.annotator,
        "shard": index,
        "num_shards": count,
        "pairs": dataset.num_pairs,
        "dataset_questions": len(questions.questions),
        "finished": False,
    }

    if not config.restart:
        annotation.check()
    stop = interruption.Interruption()
    with (
        # Else a second process would have the shard's questions answered again.
        FolderLock(annotation.folder, f".shard-{index:05d}-of-{count:05d}.lock"),
        AnnotationSession(
            annotator,
            config.store_dir,
            attempts=config.attempts,
            flush_seconds=config.flush_seconds,
            stopped=lambda: stop.requested,
        ) as session,
    ):
        if config.restart:
            annotation.discard(index, count)
            print(f"{name}: earlier labels discarded", flush=True)
        try:
            # A shard that is there has answers, too: the store may be another one by now.
            known = session.recall(own_questions, annotation.read_shard(index, count))
            answers = _ask(config, session, own_questions, known, name, stop)
            if not session.unsettled(own_questions, answers):
                annotation.write_shard(index, count, own_questions, answers)
                summary["finished"] = True
        except BaseException:
            # The summary says how far the run came. If it cannot be written either, because the
            # disk is full, the user still sees the error that ended the run, and not that of the
            # summary.
            with contextlib.suppress(OSError, UserError):
                atomic_write_json(workdir / "summary.json", summary | session.summary())
            raise
        summary |= session.summary()
        atomic_write_json(workdir / "summary.json", summary)

    print(_cut_warning(summary), end="", flush=True)
    if not summary["finished"]:
        # Unfinished without an interruption: `config.limit` ended a pilot.
        return interruption.EXIT_CODE if stop.requested else 0

    # Each command that finishes its shard tries it; the last one finds all shards finished. Two
    # that finish at the same time both merge, one after the other, and write the same labels.
    with FolderLock(annotation.folder, ".merge-lock", patience=math.inf):
        merged = _merge(config, annotator, annotation, questions, dataset)
    if merged is not None:
        _report(config, workdir, annotator, annotation, questions, dataset, merged)
        atomic_write_json(workdir / "summary.json", {**summary, "merged": merged.summary})
    return 0


def _ask(
    config: AnnotationConfig,
    session: AnnotationSession,
    questions: list[Question],
    known: Mapping[str, StoredAnswer],
    name: str,
    stop: interruption.Interruption,
) -> Mapping[str, StoredAnswer]:
    """Asks the shard's questions that `known` does not settle; returns all answers by question
    id.
    """
    # No model is loaded where all answers are known.
    if not session.unsettled(questions, known):
        return known
    session.start()
    telemetry = session.telemetry
    total = len(questions)
    progress = Progress(total, "questions", f"annotate {name}", initial=telemetry.store_hits)

    def report() -> None:
        # A question that is asked a second time (config.attempts) counts twice in `asked`.
        done = min(telemetry.store_hits + telemetry.asked, total)
        progress.update(done, **session.live())

    # From here on a signal is only noted, so that what has been answered is written first.
    with stop, progress:
        return session.ask(questions, known, limit=config.limit, report=report)


def _cut_warning(summary: dict[str, Any]) -> str:
    """A line about answers that were cut; '' without any."""
    if not summary["cut_answers"]:
        return ""
    unknown = sum(summary["unknown_notes"].get(note, 0) for note in (CUT, UNFINISHED))
    limit = summary.get("token_limit", "the limit of an answer")
    return (
        f"warning: {summary['cut_answers']:,} answers to {summary['asked']:,} questions ended before their verdict; {unknown:,} "
        f"questions stay unknown for it: raise {limit}, or turn the model's reasoning off (docs/annotation.md)\n"
    )


class Merge(NamedTuple):
    """The labels of all shards, and the figures of them."""

    labels: PairLabels
    answers: list[StoredAnswer | None]  # by the index of the question, as they were given
    figures: dict[str, Any]  # of a judge that reads captions; {} for other annotators
    ranked: list[
        judge_figures.RankedCaption
    ]  # from the most to the least preferred; [] where there are no figures
    reference_labels: np.ndarray | None  # int8 [pairs], those of `config.agreement_with`
    summary: dict[str, Any]  # an object that JSON can hold


def _merge(
    config: AnnotationConfig,
    annotator: Annotator,
    annotation: shards.Annotation,
    questions: QuestionList,
    dataset: PairsDataset,
) -> Merge | None:
    """Writes the labels if all shards are finished; None where some are not, after a line that
    names them.
    """
    answers_by_id: dict[str, StoredAnswer] = {}
    unfinished = []
    for index in range(config.num_shards):
        answers_by_id |= annotation.read_shard(index, config.num_shards)
        for question in questions.shard(index, config.num_shards):
            # Unknown ones of a shard are asked again where this command has more attempts.
            if not is_settled(answers_by_id.get(question.id), config.attempts):
                unfinished.append(index)
                break
    if unfinished:
        print(_waiting_line(annotation.name, unfinished, config.num_shards), flush=True)
        return None
    answers = [answers_by_id.get(question.id) for question in questions.questions]

    labels = labels_of_pairs(
        questions, judge_figures.corrected(answers) if config.correct_position_bias else answers
    )
    ranked = []
    figures = {}
    if annotator.reads_items:
        captions = dataset_captions(dataset.data, config.captions.messages, config.captions.status)
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
        agreement = judge_figures.agreement(labels.labels[was_asked], reference_labels[was_asked])
        summary["agreement"] = {"with": config.agreement_with, **agreement}
    if figures:
        summary["judge"] = {**figures, "captions": _first_and_last(ranked)}
    annotation.write(labels, summary)
    return Merge(labels, answers, figures, ranked, reference_labels, summary)


def _report(
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
