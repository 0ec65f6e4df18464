"""Shows the questions and their cost without asking."""

from __future__ import annotations

from pathlib import Path

from motif_jax.core.files import read_json
from motif_jax.core.progress import format_seconds
from motif_jax.motif.annotation.annotator import Annotator
from motif_jax.motif.annotation.config import AnnotationConfig
from motif_jax.motif.annotation.questions import QuestionList
from motif_jax.motif.annotation.store import AnswerStore

_SAMPLE = 200


def report_dry_run(
    config: AnnotationConfig, workdir: Path, annotator: Annotator, questions: QuestionList, store: AnswerStore
) -> None:
    """Prints the conversations of the first pairs and the estimate."""
    first = [place for place in questions.asked[:, 0] if place >= 0][: config.dry_run_pairs]
    for place in dict.fromkeys(first):
        preview = annotator.preview(questions.questions[place])
        tokens = f"{'' if preview.exact else 'about '}{preview.tokens:,} tokens" if preview.tokens else ""
        print(f"--- question {place} ({tokens or 'no language model, no tokens'})\n{preview.text}\n")
    print("\n".join(estimate_lines(config, workdir, annotator, questions, store)), flush=True)


def estimate_lines(
    config: AnnotationConfig, workdir: Path, annotator: Annotator, questions: QuestionList, store: AnswerStore
) -> list[str]:
    """The cost estimate, one line for each figure."""
    total, pairs = len(questions.questions), len(questions.asked)
    untold = int((questions.asked[:, 0] < 0).sum())
    answered = len(store.find({question.id for question in questions.questions}))
    left = total - answered
    lines = [
        f"pairs        {pairs:,}, {untold:,} of them ties of equal captions",
        f"questions    {total:,} distinct, {total / pairs:.3f} a pair; {answered:,} answered in {config.store_dir}",
        f"to be asked  {left:,} in {config.num_shards:,} shards",
    ]
    summary = workdir / "summary.json"
    last = read_json(summary, "remove it, it is written again") if summary.exists() else {}
    spread = questions.questions[:: max(1, total // _SAMPLE)][:_SAMPLE]
    previews = [annotator.preview(question) for question in spread]
    if previews and previews[0].tokens is not None:
        mean = sum(preview.tokens or 0 for preview in previews) / len(previews)
        about = "" if previews[0].exact else "about "
        reply = last.get("completion_tokens", 0) / last["asked"] if last.get("asked") else 0.0
        unknown = "and those of the answers, not measured yet"
        said = f"{reply:,.0f} of the answer as in the last run" if reply else unknown
        lines.append(f"tokens       {about}{mean:,.0f} a question, {about}{mean * left:,.0f} in all, {said}")
        if annotator.prices is not None:
            paid = annotator.prices.of(mean * left, reply * left)
            more = "" if reply else ", and that of the answers"
            lines.append(f"cost         {about}{paid:,.2f}{more}, by config.openai.prices")
    rate = config.measured_rate or last.get("questions_per_second") or 0.0
    if rate:
        source = "config.measured_rate" if config.measured_rate else f"measured in {workdir}"
        hours = left / rate / 3600
        lines.append(
            f"time         {format_seconds(left / rate)} at {rate:,.2f} questions/s ({source}): {hours:,.2f} hours for one "
            f"shard after the other, {hours / config.num_shards:,.2f} side by side"
        )
    else:
        lines.append(
            "time         not measured yet: ask a few with --config.limit=200 in the same --workdir, or give "
            "--config.measured_rate=QUESTIONS_PER_SECOND"
        )
    return lines
