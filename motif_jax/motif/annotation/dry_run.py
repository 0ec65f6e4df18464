"""Shows the questions and their cost without asking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motif_jax.core.files import read_json
from motif_jax.core.progress import format_seconds
from motif_jax.motif.annotation.annotator import Annotator, Preview
from motif_jax.motif.annotation.config import AnnotationConfig
from motif_jax.motif.annotation.questions import QuestionList
from motif_jax.motif.annotation.store import AnswerStore, is_settled

# Pairs whose conversations are printed: one may be an exception, more fill the terminal.
_PRINTED_PAIRS = 2
# Questions whose tokens are counted for the mean.
_SAMPLE = 200


def report_dry_run(
    config: AnnotationConfig,
    workdir: Path,
    annotator: Annotator,
    questions: QuestionList,
    store: AnswerStore,
) -> None:
    """Prints the conversations of the first pairs and the estimate."""
    indices = [index for index in questions.question_indices[:, 0] if index >= 0]
    # Pairs may share a question, which is shown once.
    for index in dict.fromkeys(indices[:_PRINTED_PAIRS]):
        preview = annotator.preview(questions.questions[index])
        tokens = "no language model, no tokens"
        if preview.tokens:
            tokens = f"{'' if preview.exact else 'about '}{preview.tokens:,} tokens"
        print(f"--- question {index} ({tokens})\n{preview.text}\n")
    print("\n".join(estimate_lines(config, workdir, annotator, questions, store)), flush=True)


def estimate_lines(
    config: AnnotationConfig,
    workdir: Path,
    annotator: Annotator,
    questions: QuestionList,
    store: AnswerStore,
) -> list[str]:
    """The cost estimate, one line for each figure."""
    total = len(questions.questions)
    pairs = len(questions.question_indices)
    equal_captions = int((questions.question_indices[:, 0] < 0).sum())
    stored = store.find({question.id for question in questions.questions})
    answered = sum(is_settled(answer, config.attempts) for answer in stored.values())
    unanswered = total - answered
    lines = [
        f"pairs        {pairs:,}, {equal_captions:,} of them ties of equal captions",
        f"questions    {total:,} distinct, {total / pairs:.3f} a pair; {answered:,} answered in {config.store_dir}",
        f"to be asked  {unanswered:,} in {config.num_shards:,} shards",
    ]

    last_run = _last_run(config, workdir, annotator)
    stride = max(1, total // _SAMPLE)
    sample = questions.questions[::stride][:_SAMPLE]
    lines += _token_lines(
        annotator, [annotator.preview(question) for question in sample], unanswered, last_run
    )

    # That of a pilot in this work folder.
    rate = last_run.get("questions_per_second") or 0.0
    if rate:
        hours = unanswered / rate / 3600
        lines.append(
            f"time         {format_seconds(unanswered / rate)} at {rate:,.2f} questions/s (measured in {workdir}): {hours:,.2f} hours for one "
            f"shard after the other, {hours / config.num_shards:,.2f} side by side"
        )
    else:
        lines.append(
            "time         not measured yet: ask a few with --config.limit=200 in the same --workdir"
        )
    return lines


def _last_run(config: AnnotationConfig, workdir: Path, annotator: Annotator) -> dict[str, Any]:
    """The summary of a run in the work folder that asked for the same labels; {} without any.

    A pilot has measured the length of answers and the rate. Those of another annotator say nothing
    about this one.
    """
    path = workdir / "summary.json"
    if not path.exists():
        return {}
    summary: dict[str, Any] = read_json(path, "remove it, it is written again")
    has_same_name = summary.get("name") == (config.name or annotator.short_name)
    has_same_annotator = summary.get("annotator") == config.annotator
    return summary if has_same_name and has_same_annotator else {}


def _token_lines(
    annotator: Annotator, previews: Sequence[Preview], unanswered: int, last_run: dict[str, Any]
) -> list[str]:
    """Tokens and cost of the unanswered questions, from a sample of them; [] for an annotator
    without a model.
    """
    if not previews or previews[0].tokens is None:
        return []
    prompt = sum(preview.tokens or 0 for preview in previews) / len(previews)
    about = "" if previews[0].exact else "about "

    completion = 0.0
    if last_run.get("asked"):
        completion = last_run.get("completion_tokens", 0) / last_run["asked"]
    if completion:
        answers = f"{completion:,.0f} of the answer as in the last run"
    else:
        answers = "and those of the answers, not measured yet"
    lines = [
        f"tokens       {about}{prompt:,.0f} a question, {about}{prompt * unanswered:,.0f} in all, {answers}"
    ]

    if annotator.prices is not None:
        cost = annotator.prices.of(prompt * unanswered, completion * unanswered)
        missing = "" if completion else ", and that of the answers"
        lines.append(f"cost         {about}{cost:,.2f}{missing}, by config.openai.prices")
    return lines
