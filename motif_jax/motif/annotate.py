"""Asks an annotator about a dataset's pairs and writes preference/NAME.npy."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import interruption, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json
from motif_jax.core.progress import Progress
from motif_jax.motif import merged_labels
from motif_jax.motif.annotation import judge_probes, shards
from motif_jax.motif.annotation.annotator import (
    Annotator,
    Question,
    annotator_class,
    check_annotator,
    check_keys_of_others,
    make_annotator,
    with_annotator_defaults,
)
from motif_jax.motif.annotation.captions import dataset_captions
from motif_jax.motif.annotation.chat import CUT
from motif_jax.motif.annotation.config import AnnotationConfig
from motif_jax.motif.annotation.conversations import ConversationLog
from motif_jax.motif.annotation.dry_run import report_dry_run
from motif_jax.motif.annotation.parsing import UNFINISHED
from motif_jax.motif.annotation.questions import (
    QuestionHasher,
    QuestionList,
    caption_questions,
    pair_questions,
)
from motif_jax.motif.annotation.session import AnnotationSession
from motif_jax.motif.annotation.store import AnswerStore, check_store
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.schema import read_open_section


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
    check_store(config.store_dir)
    # Probes are texts of their own.
    if not config.probe:
        checks.existing_folder(config, "dataset_dir")
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
    # `restart` discards the labels of this name, so that nothing would be left to compare with. Not
    # in `check`, since the name may be that of a model, which a check does not fetch.
    name = config.name or annotator.short_name
    allowed = f"other labels than those of this run, {name}"
    checks.require_key(config, "agreement_with", config.agreement_with != name, allowed)
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
        reads_items = annotator_class(config.annotator).reads_items
        allowed = f"False: the annotator {config.annotator} reads no messages"
        checks.require_key(config, "probe", reads_items, allowed)
        allowed = "False with config.probe=True, which asks its pairs"
        checks.require_key(config, "dry_run", not config.dry_run, allowed)
        allowed = "None with config.probe=True, which asks all of its pairs"
        checks.require_key(config, "limit", config.limit is None, allowed)
        allowed = "'' with config.probe=True, which labels no dataset"
        checks.require_key(config, "agreement_with", not config.agreement_with, allowed)
        allowed = "False with config.probe=True, which counts the answers as they are"
        is_off = not config.correct_position_bias
        checks.require_key(config, "correct_position_bias", is_off, allowed)
        # configs/annotate.py:faithful has 'given'.
        allowed = "auto or both with config.probe=True, which asks each pair in both orders"
        checks.require_key(config, "orders", config.orders != "once", allowed)
        judge_probes.read(config.probe_pairs)

    if config.agreement_with:
        path = shards.Annotation(Path(config.dataset_dir), config.agreement_with).preference_path
        checks.require_key(
            config, "agreement_with", path.is_file(), f"a label file: there is no {path}"
        )
        PairsDataset.open(config.dataset_dir).preference(config.agreement_with)

    if config.correct_position_bias:
        used = with_annotator_defaults(config)
        can_correct = used.answer.mode == "soft" and used.orders != "given"
        allowed = "False unless answer.mode=soft and orders=once or both"
        checks.require_key(config, "correct_position_bias", can_correct, allowed)


def _probe(config: AnnotationConfig, workdir: Path, annotator: Annotator) -> int:
    """Asks pairs with a known answer; prints and writes how many are right."""
    pairs = judge_probes.read(config.probe_pairs)
    conversations = _conversation_log(config, workdir, "probe")
    with AnnotationSession(
        annotator, config.store_dir, attempts=config.attempts, conversations=conversations
    ) as session:
        figures = judge_probes.ask(session, pairs)
        telemetry = session.summary()

    report = {"pairs": config.probe_pairs, **figures}
    if telemetry["asked"]:
        # Answers from the store took no time, so that there is no rate without a question.
        report["questions_per_second"] = telemetry["questions_per_second"]
    atomic_write_json(workdir / "probe.json", report)
    print(judge_probes.describe(figures), flush=True)
    return 0


def _conversation_log(config: AnnotationConfig, workdir: Path, stem: str) -> ConversationLog | None:
    return ConversationLog(workdir / "conversations", stem) if config.keep_conversations else None


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
    config: AnnotationConfig, dataset: PairsDataset, annotator: Annotator, questions: QuestionList
) -> dict:
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
        "name": config.name or annotator.short_name,
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
    manifest = _manifest(config, dataset, annotator, questions)
    name = manifest["name"]
    index = config.shard_index
    count = config.num_shards
    # `check` has seen a name of the config; the default one may be that of a class from outside.
    shards.check_name(name)

    annotation = shards.Annotation(dataset.folder, name)
    if config.restart:
        print(f"{name}: {annotation.discard(index, count):,} labels discarded", flush=True)
    else:
        annotation.check(manifest)
    # After the comparison: each shard has its own, which binds none of the others.
    manifest["shard"] = {"index": index, "count": count}

    summary = {
        "name": name,
        "annotator": config.annotator,
        "shard": index,
        "num_shards": count,
        "pairs": dataset.num_pairs,
        "dataset_questions": len(questions.questions),
        "finished": False,
    }
    conversations = _conversation_log(config, workdir, f"{name}.shard-{index:05d}-of-{count:05d}")

    stop = interruption.Interruption()
    with (
        contextlib.closing(annotation.open_shard(index, count, manifest)) as shard,
        AnnotationSession(
            annotator,
            config.store_dir,
            attempts=config.attempts,
            flush_seconds=config.flush_seconds,
            conversations=conversations,
            stopped=lambda: stop.requested,
        ) as session,
    ):
        try:
            summary["finished"] = _ask(config, session, questions.shard(index, count), shard, stop)
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

    # Each command that finishes its shard tries it; the last one finds all shards finished.
    merged = merged_labels.merge(config, annotator, annotation, questions, manifest, dataset)
    if merged is not None:
        merged_labels.report(config, workdir, annotator, annotation, questions, dataset, merged)
        atomic_write_json(workdir / "summary.json", {**summary, "merged": merged.summary})
    return 0


def _ask(
    config: AnnotationConfig,
    session: AnnotationSession,
    questions: list[Question],
    shard: shards.Shard,
    stop: interruption.Interruption,
) -> bool:
    """Settles the shard's questions from the store, then asks the rest; returns whether all are
    settled.
    """
    known = session.recall(questions, shard.answers(), shard.add)
    # No model is loaded where shard and store have all answers.
    if not session.unsettled(questions, known):
        return True
    session.start()
    telemetry = session.telemetry
    total = len(questions)
    progress = Progress(total, "questions", f"annotate {shard.name}", initial=telemetry.store_hits)

    def report() -> None:
        # A question that is asked a second time (config.attempts) counts twice in `asked`.
        done = min(telemetry.store_hits + telemetry.asked, total)
        progress.update(done, **session.live())

    # From here on a signal is only noted, so that what has been answered is written first.
    with stop, progress:
        answers = session.ask(questions, known, limit=config.limit, keep=shard.add, report=report)
    return not session.unsettled(questions, answers)


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
