"""Scores of texts for the rewards of text tasks: toxicity by an annotator through the answer store, upvotes by a model of train_upvote."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text
from motif_jax.core.interruption import StoppedError, never
from motif_jax.core.verdicts import SINGLE, UNKNOWN, YES
from motif_jax.ilql.tasks.contract import Scorer, TextTask
from motif_jax.motif.annotation import annotator as annotators
from motif_jax.motif.annotation import config as sections
from motif_jax.motif.annotation.annotator import Annotator, Question
from motif_jax.motif.annotation.prompts import FOLDER
from motif_jax.motif.annotation.questions import QuestionHasher
from motif_jax.motif.annotation.session import AnnotationSession
from motif_jax.motif.annotation.store import AnswerStore, StoredAnswer

FILE = "scores.json"
RUDE, TOXIC = "rude", "toxic"
# A yes to 'toxic' of less log-probability falls back to what 'rude' says (published: of the filter's label 2).
TOXIC_THRESHOLD = -0.355
# What a filter can read of a text; longer ones are cut, as published in its tokens, of about four characters each.
MOST_CHARACTERS = 4 * 2042
_TOGETHER = 256


def annotator_config(options: Mapping[str, Any], goal: str) -> sections.AnnotatorConfig:
    """What an annotator of single comments reads, from a task's options."""
    prompt, answer = sections.PromptChoice(), sections.AnswerMode()
    if annotators.annotator_class(options["annotator"]).reads_prompt:
        prompt = sections.PromptChoice(file=options["prompt"] or str(FOLDER / "comments" / "toxicity.yaml"))
        answer = sections.AnswerMode(mode=options["answer_mode"])
    server = sections.OpenaiServer(model=options["model"])
    if options["server"]:
        server = replace(server, base_url=options["server"])
    return sections.AnnotatorConfig(
        annotator=options["annotator"],
        goal=goal,
        prompt=prompt,
        answer=answer,
        sampling=sections.AnswerSampling(temperature=0.0, top_p=1.0, max_tokens=256),
        lexicon=sections.LexiconFile(file=options["lexicon"] or "comments.yaml"),
        vllm=sections.VllmEngine(model=options["model"]),
        openai=server,
    )


class Toxicity:
    """A `Scorer`: 0 friendly or neutral, 1 rude, 2 toxic, by two questions about each text; `options` are the task's."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._known: dict[tuple[str, str], float] = {}
        self._hashers: dict[str, QuestionHasher] = {}
        # A reply at a time would read the whole store for each. Environments may ask from several threads.
        self._store, self._lock = AnswerStore(options["store"]), threading.Lock()

    def __call__(self, texts: Sequence[str]) -> list[float]:
        cut = [text[:MOST_CHARACTERS] for text in texts]
        rude, toxic = (self._shares(goal, list(dict.fromkeys(cut))) for goal in (RUDE, TOXIC))
        return [toxicity_label(rude[text], toxic[text]) for text in cut]

    def prepare(
        self, texts: Sequence[str], report: Callable[[int], None], stopped: Callable[[], bool]
    ) -> None:
        """Asks about all texts at once: a model that is loaded in this process is loaded once for each question, not for each part.

        `report` is called with the number of texts done; there are two questions about each.

        Raises:
          StoppedError: `stopped` said so between two parts.
        """
        cut = list(dict.fromkeys(text[:MOST_CHARACTERS] for text in texts))
        self._shares(RUDE, cut, lambda answered: report(answered // 2), stopped)
        self._shares(TOXIC, cut, lambda answered: report((len(cut) + answered) // 2), stopped)

    def _annotator(self, goal: str) -> Annotator:
        return annotators.make_annotator(annotator_config(self._options, goal), SINGLE)

    def _shares(
        self,
        goal: str,
        texts: Sequence[str],
        report: Callable[[int], None] = lambda done: None,
        stopped: Callable[[], bool] = never,
    ) -> dict[str, float]:
        new = [text for text in texts if (goal, text) not in self._known]
        if new:
            judged = self._judged(goal, new, report, stopped)
            self._known |= {(goal, text): share for text, share in judged.items()}
        return {text: self._known[goal, text] for text in texts}

    def _judged(
        self, goal: str, texts: Sequence[str], report: Callable[[int], None], stopped: Callable[[], bool]
    ) -> dict[str, float]:
        if goal not in self._hashers:
            self._hashers[goal] = QuestionHasher(self._annotator(goal).identity)
        hasher = self._hashers[goal]
        questions = [Question(hasher.items((text,), SINGLE), (text,), SINGLE) for text in texts]
        with self._lock:
            stored = ((each.id, self._store.get(each.id)) for each in questions)
            answers = {key: answer for key, answer in stored if answer is not None}
        missing = [question for question in questions if question.id not in answers]
        if missing:
            from_store = len(answers)
            annotator, store = self._annotator(goal), self._options["store"]
            with AnnotationSession(annotator, store, SINGLE, stopped=stopped) as session:
                answers |= session.ask(
                    missing, {}, report=lambda: report(from_store + session.telemetry.asked)
                )
            if len(answers) < len(questions):
                raise StoppedError
        return {each.items[0]: _share(goal, answers[each.id], each.items[0]) for each in questions}


def toxicity_label(rude: float, toxic: float) -> float:
    """0, 1 or 2 from the probabilities that a text is rude, and that it is toxic."""
    if toxic > 0.5 and math.log(toxic) >= TOXIC_THRESHOLD:
        return 2.0
    return 1.0 if rude > 0.5 else 0.0


def _share(goal: str, answer: StoredAnswer, text: str) -> float:
    if answer.label == UNKNOWN:
        raise UserError(
            f"config.reddit.annotator: has no answer to whether {text[:40]!r} is {goal}: give another model or prompt"
        )
    return float((answer.probabilities or SINGLE.certain(answer.label))[YES])


def _upvote_folder(options: Mapping[str, Any]) -> Path:
    run = options["upvote_run"]
    for path in (Path(run) / "model", Path(run)):
        if (path / "heads.json").is_file():
            return path
    raise UserError(
        f"config.reddit.upvote_run={run}: must be a run folder of train_upvote or import_ilql, whose training has ended"
    )


def _make(task: TextTask) -> Scorer:
    if task.scored_by() == "toxicity":
        return Toxicity(task.options)
    from motif_jax.ilql.tasks.reddit.text_scorer import TextScorer

    return TextScorer(_upvote_folder(task.options))


def check(task: TextTask, plays: bool) -> None:
    """Raises UserError where what scores texts for the task cannot be used, as far as that is known without asking it.

    `plays`: replies are scored as they are said, beside texts that are there before.
    """
    if task.scored_by() == "toxicity":
        if plays and annotators.annotator_class(task.options["annotator"]).loads_model:
            raise UserError(
                f"config.{task.name}.annotator={task.options['annotator']}: would load the model again for every reply of a game: start vLLM's server, and give "
                f"openai with config.{task.name}.server and config.{task.name}.model"
            )
        for goal in (RUDE, TOXIC):
            annotators.check_annotator(annotator_config(task.options, goal), SINGLE)
    if task.scored_by() == "upvote":
        _upvote_folder(task.options)


def attach(task: TextTask) -> TextTask:
    """Gives the task what scores texts for it, where it needs that."""
    if task.scored_by():
        task.use_scorer(_make(task))
    return task


def write(
    task: TextTask,
    texts: Sequence[str],
    folder: Path,
    report: Callable[[int], None],
    stopped: Callable[[], bool] = never,
) -> Path:
    """Scores texts into a file for the task's option `scores`, which says whose they are, beside what the task knows.

    `report` is called with how many are done. Raises StoppedError.
    """
    scorer, size = _make(task), _TOGETHER
    if isinstance(scorer, Toxicity):
        scorer.prepare(texts, report, stopped)
        size = max(1, len(texts))
    scores = dict(task.known_scores())
    for first in range(0, len(texts), size):
        if stopped():
            raise StoppedError
        part = texts[first : first + size]
        scores |= dict(zip(part, scorer(part), strict=True))
        report(first + len(part))
    path = folder / FILE
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, json.dumps({"judge": task.scored_by(), "scores": scores}, ensure_ascii=False))
    return path
