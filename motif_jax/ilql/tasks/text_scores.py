"""Scores of texts for the rewards of text tasks: toxicity by an annotator, from two questions about
each text (Snell et al. 2022, the toxicity filter); upvotes by a model of train_upvote.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text
from motif_jax.core.interruption import StoppedError, never
from motif_jax.ilql.tasks.contract import Scorer, TextTask

FILE = "scores.json"
# Texts that a model scores between two reports.
BATCH = 256
RUDE, TOXIC = "rude", "toxic"
FRIENDLY_LABEL, RUDE_LABEL, TOXIC_LABEL = 0.0, 1.0, 2.0
# A yes to 'toxic' of less log-probability falls back to the answer to 'rude' (published: of the
# filter's label 2).
TOXIC_THRESHOLD = -0.355
# What a filter can read of a text; longer ones are cut, as published in its tokens, of about four
# characters each.
MAX_CHARACTERS = 4 * 2042
# Annotators belong to Motif, which this package may not import.
_JUDGE = "motif_jax.motif.annotation.text_judge:TextJudge"


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


class Judge(Protocol):
    """See `motif.annotation.text_judge.TextJudge`."""

    @property
    def loads_model(self) -> bool: ...

    def check(self, goal: str) -> None: ...

    def probabilities(
        self,
        goal: str,
        texts: Sequence[str],
        report: Callable[[int], None] = ...,
        stopped: Callable[[], bool] = ...,
    ) -> Mapping[str, float]: ...


class Toxicity:
    """A `Scorer`: 0 friendly or neutral, 1 rude, 2 toxic."""

    def __init__(self, section: str, options: Mapping[str, Any]) -> None:
        """Asks nobody. `options` are those of the task, whose config section is `section`."""
        self._judge: Judge = entry_points.load_packaged(_JUDGE)(section, options)

    @property
    def loads_model(self) -> bool:
        """Whether the annotator loads a language model into this process."""
        return self._judge.loads_model

    def check(self) -> None:
        """Raises UserError where the annotator cannot be used, as far as that is known without
        asking it.
        """
        for goal in (RUDE, TOXIC):
            self._judge.check(goal)

    def __call__(self, texts: Sequence[str]) -> list[float]:
        cut = [text[:MAX_CHARACTERS] for text in texts]
        distinct = list(dict.fromkeys(cut))
        rude = self._judge.probabilities(RUDE, distinct)
        toxic = self._judge.probabilities(TOXIC, distinct)
        return [toxicity_label(rude[text], toxic[text]) for text in cut]

    def prepare(
        self,
        texts: Sequence[str],
        report: Callable[[int], None],
        stopped: Callable[[], bool] = never,
    ) -> None:
        """Asks about all texts at once: a model that is loaded in this process is loaded once for
        each question, not for each part.

        `report` is called with the number of texts done; there are two questions about each.

        Raises:
          StoppedError: `stopped` said so between two answers.
        """
        distinct = list(dict.fromkeys(text[:MAX_CHARACTERS] for text in texts))
        count = len(distinct)
        self._judge.probabilities(RUDE, distinct, lambda answered: report(answered // 2), stopped)
        self._judge.probabilities(
            TOXIC, distinct, lambda answered: report((count + answered) // 2), stopped
        )


def toxicity_label(rude: float, toxic: float) -> float:
    """0, 1 or 2 from the probabilities that a text is rude, and that it is toxic."""
    # exp(-0.355) is 0.70: a yes that is not certain enough does not count.
    if toxic > 0.5 and math.log(toxic) >= TOXIC_THRESHOLD:
        return TOXIC_LABEL
    return RUDE_LABEL if rude > 0.5 else FRIENDLY_LABEL
