"""Asks an annotator about a dataset's pairs and writes preference/NAME.npy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation import manifest as manifests
from motif_jax.annotation import shards
from motif_jax.annotation.annotator import Annotator, check_annotator, make_annotator
from motif_jax.annotation.asking import Asking, unsettled
from motif_jax.annotation.captions import CaptionReader
from motif_jax.annotation.conversations import ConversationLog
from motif_jax.annotation.dry_run import report_dry_run
from motif_jax.annotation.labels import counts
from motif_jax.annotation.questions import (
    ORDERS,
    QuestionHasher,
    QuestionList,
    caption_questions,
    pair_questions,
)
from motif_jax.annotation.store import AnswerStore, check_store
from motif_jax.annotation.telemetry import Telemetry
from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.support import config as checks
from motif_jax.support import interruption, run_folder
from motif_jax.support.files import FolderLock, atomic_write_json
from motif_jax.support.progress import Progress


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for a bad value, a folder that is no dataset, or a model or prompt that is not there."""
    run_folder.check_identity(workdir, config)
    for key in ("num_shards", "attempts", "dry_run_pairs"):
        checks.positive(config, key)
    checks.positive(config, "flush_seconds", allow_zero=True)
    checks.positive(config, "limit", allow_none=True)
    checks.positive(config, "measured_rate", allow_none=True)
    inside = 0 <= config.shard_index < config.num_shards
    checks.require(
        inside, "shard_index", config.shard_index, f"from 0 to num_shards - 1 = {config.num_shards - 1}"
    )
    checks.choice(config, "orders", ORDERS)
    either = config.captions.messages or config.captions.status
    checks.require(either, "captions.messages", False, "True unless captions.status is")
    if config.name:
        shards.check_name(config.name)
    check_store(config.store_dir)
    checks.existing_folder(config, "dataset_dir")
    _open_dataset(config)
    check_annotator(config)


def run(config: ConfigDict, workdir: Path) -> int:
    """Annotates one shard, and merges when all shards are there."""
    dataset = _open_dataset(config)
    annotator = make_annotator(config, dataset)
    try:
        hasher = QuestionHasher(annotator.identity)
        questions = _list_questions(config, dataset, annotator, hasher)
        if config.dry_run:
            report_dry_run(config, workdir, annotator, questions, AnswerStore(config.store_dir))
            return 0
        with FolderLock(workdir):
            run_folder.prepare(workdir, config)
            return _annotate(config, workdir, dataset, annotator, questions)
    finally:
        annotator.close()


def _open_dataset(config: ConfigDict) -> PairsDataset:
    need = ("message", "blstats") if config.captions.status else ("message",)
    return PairsDataset.open(config.dataset_dir, need=need)


def _list_questions(
    config: ConfigDict, dataset: PairsDataset, annotator: Annotator, hasher: QuestionHasher
) -> QuestionList:
    if not annotator.reads_captions:
        return pair_questions(dataset.num_pairs, hasher)
    status = dataset.data["blstats"] if config.captions.status else None
    reader = CaptionReader(dataset.data["message"], status, config.captions.messages)
    return caption_questions(reader, dataset.num_pairs, hasher, config.orders)


def _manifest(
    config: ConfigDict, dataset: PairsDataset, annotator: Annotator, questions: QuestionList
) -> dict:
    about: dict[str, Any] = {"about": "captions" if annotator.reads_captions else "pairs"}
    if annotator.reads_captions:
        about |= {"orders": config.orders, "captions": config.captions.to_dict()}
    return {
        "format": manifests.FORMAT,
        "name": config.name or annotator.short_name,
        "annotator": dict(annotator.identity),
        "dataset": {
            "pairs": dataset.num_pairs,
            "length": dataset.length,
            "content_hash": dataset.content_hash(),
        },
        "questions": {**about, "count": len(questions.questions), "digest": questions.digest()},
        "versions": run_folder.versions(),
    }


def _annotate(
    config: ConfigDict, workdir: Path, dataset: PairsDataset, annotator: Annotator, questions: QuestionList
) -> int:
    manifest = _manifest(config, dataset, annotator, questions)
    name, index, count = manifest["name"], config.shard_index, config.num_shards
    annotation = shards.Annotation(dataset.folder, name)
    if config.restart:
        print(f"{name}: {annotation.discard(index, count):,} labels discarded", flush=True)
    else:
        annotation.check(manifest)
    manifest["shard"] = {"index": index, "count": count}
    shard = annotation.open_shard(index, count, manifest)
    store = AnswerStore(config.store_dir)
    try:
        mine = questions.shard(index, count)
        settled, stopped, telemetry = _ask(config, workdir, annotator, mine, store, shard, name)
    finally:
        store.close()
        shard.close()
    summary = {"name": name, "annotator": config.annotator, "shard": index, "num_shards": count}
    summary |= {"pairs": dataset.num_pairs, "dataset_questions": len(questions.questions)}
    summary |= {"finished": settled, **telemetry.summary()}
    atomic_write_json(workdir / "summary.json", summary)
    if not settled:
        return interruption.EXIT_CODE if stopped else 0
    merged = _merge(annotation, questions, count, manifest, dataset.num_pairs)
    if merged is not None:
        atomic_write_json(workdir / "summary.json", {**summary, "merged": merged})
    return 0


def _ask(
    config: ConfigDict,
    workdir: Path,
    annotator: Annotator,
    questions: list,
    store: AnswerStore,
    shard: shards.Shard,
    name: str,
) -> tuple[bool, bool, Telemetry]:
    """Settles the shard's questions from the store, then asks the rest.

    Returns whether all are settled, whether it was stopped on request, and the counts.
    """
    known = shard.answers()
    missing = {question.id for question in unsettled(questions, known, config.attempts)}
    found = store.find(missing) if missing else {}
    shard.add(found.items())
    known |= found
    pending = unsettled(questions, known, config.attempts)
    telemetry = Telemetry(questions=len(questions), store_hits=len(questions) - len(pending))
    if not pending:
        return True, False, telemetry
    annotator.start()
    telemetry.started = time.monotonic()
    log = None
    if config.keep_conversations:
        stem = f"{name}.shard-{config.shard_index:05d}-of-{config.num_shards:05d}"
        log = ConversationLog(workdir / "conversations", stem)
    hits = telemetry.store_hits
    progress = Progress(len(questions), "questions", f"annotate {name}", initial=hits)
    with interruption.Interruption() as stop, progress:
        asking = Asking(
            annotator,
            store,
            shard,
            telemetry,
            conversations=log,
            flush_seconds=config.flush_seconds,
            attempts=config.attempts,
            stopped=lambda: stop.requested,
            report=lambda: progress.update(min(hits + telemetry.asked, len(questions)), **telemetry.live()),
        )
        settled = asking.ask(questions, known, config.limit)
    return settled, stop.requested, telemetry


def _merge(
    annotation: shards.Annotation, questions: QuestionList, count: int, manifest: dict, num_pairs: int
) -> dict[str, Any] | None:
    """Writes the label file if all shards are there; returns its summary, or None."""
    with annotation.merging():
        answers, unfinished = annotation.read_answers(questions, count, manifest)
        if unfinished:
            print(
                f"{annotation.name}: waiting for {len(unfinished)} of {count} shards ({_some(unfinished)})",
                flush=True,
            )
            return None
        merged = shards.merge(questions, answers)
        if len(merged.labels) != num_pairs:
            raise AssertionError(f"{len(merged.labels)} labels for {num_pairs} pairs")
        summary: dict[str, Any] = {"pairs": num_pairs, "questions": len(answers), **counts(merged.labels)}
        summary["questions_per_pair"] = len(answers) / num_pairs
        if merged.position_bias is not None:
            summary["position_bias"] = merged.position_bias
        annotation.write(merged, summary)
    print(f"{annotation.preference_path}: {_sentence(summary)}", flush=True)
    return summary


def _some(indices: list[int]) -> str:
    shown = ", ".join(str(index) for index in indices[:8])
    return shown + (", ..." if len(indices) > 8 else "")


def _sentence(summary: dict[str, Any]) -> str:
    text = (
        f"{summary['pairs']:,} pairs, {summary['questions']:,} distinct questions; "
        f"{summary['first']:,} first, {summary['second']:,} second, {summary['tie']:,} tie, {summary['unknown']:,} unknown"
    )
    if bias := summary.get("position_bias"):
        text += f"; asked both ways {bias['consistent']:.1%} agree, the caption shown first wins {bias['first_share']:.1%}"
    return text
