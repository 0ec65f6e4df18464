"""Scores of texts for the rewards of text tasks: toxicity by an annotator, upvotes by a model of
train_upvote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text
from motif_jax.core.interruption import StoppedError, never
from motif_jax.ilql.tasks.contract import Scorer, TextTask
from motif_jax.ilql.tasks.reddit.toxicity import Toxicity

FILE = "scores.json"
# Texts that a model scores between two reports.
BATCH = 256


def check(task: TextTask, plays: bool) -> None:
    """Raises UserError where the task's scorer cannot be used, as far as that is known without
    asking it.

    Args:
      plays: whether new replies are scored as they are said, not only recorded texts.
    """
    if task.scored_by() == "toxicity":
        scorer = Toxicity(task.name, task.options)
        if plays and scorer.loads_model:
            raise UserError(
                f"config.{task.name}.annotator={task.options['annotator']}: would load the model again for every reply of a game: start vLLM's server, and give "
                f"openai with config.{task.name}.server and config.{task.name}.model"
            )
        scorer.check()
    if task.scored_by() == "upvote":
        upvote_folder(task.options["upvote_run"])


def attach(task: TextTask) -> TextTask:
    """Gives the task its scorer, if its rewards need one."""
    if task.scored_by():
        task.use_scorer(_scorer_of(task))
    return task


def write(
    task: TextTask,
    texts: Sequence[str],
    folder: Path,
    report: Callable[[int], None],
    stopped: Callable[[], bool] = never,
) -> Path:
    """Scores texts into a file for the task's option `scores`, which names their judge, beside the
    scores that the task knows.

    `report` is called with the number of texts done. Raises StoppedError.
    """
    scorer = _scorer_of(task)
    size = BATCH
    if isinstance(scorer, Toxicity):
        # All are asked here; the one batch below reads the answers that are kept.
        scorer.prepare(texts, report, stopped)
        size = max(1, len(texts))

    scores = dict(task.known_scores())
    for first in range(0, len(texts), size):
        if stopped():
            raise StoppedError
        batch = texts[first : first + size]
        scores |= dict(zip(batch, scorer(batch), strict=True))
        report(first + len(batch))

    path = folder / FILE
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_text(
        path, json.dumps({"judge": task.scored_by(), "scores": scores}, ensure_ascii=False)
    )
    return path


def upvote_folder(run: str) -> Path:
    """The folder of the trained model in a run of train_upvote. Raises UserError: there is none."""
    for path in (Path(run) / "model", Path(run)):
        if (path / "heads.json").is_file():
            return path
    raise UserError(
        f"config.reddit.upvote_run={run}: must be a run folder of train_upvote or import:ilql, whose training has ended"
    )


def _scorer_of(task: TextTask) -> Scorer:
    if task.scored_by() == "toxicity":
        return Toxicity(task.name, task.options)
    # Here, since it imports jax, without which text tasks are to be imported.
    from motif_jax.ilql.tasks.reddit.text_scorer import TextScorer

    return TextScorer(upvote_folder(task.options["upvote_run"]))
