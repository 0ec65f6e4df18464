"""An annotator's yes or no about single texts, for the rewards of a text task, through the answer
store.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError, never
from motif_jax.core.verdicts import SINGLE, UNKNOWN, YES
from motif_jax.motif.annotation import annotator as annotators
from motif_jax.motif.annotation.annotator import Annotator, Question
from motif_jax.motif.annotation.config import (
    AnnotatorConfig,
    AnswerMode,
    AnswerSampling,
    LexiconFile,
    ModelJudge,
    OpenaiServer,
    PromptChoice,
    VllmEngine,
)
from motif_jax.motif.annotation.prompts import FOLDER
from motif_jax.motif.annotation.questions import QuestionHasher
from motif_jax.motif.annotation.session import AnnotationSession
from motif_jax.motif.annotation.store import AnswerStore, StoredAnswer, is_settled

# Times that a text without a clear answer is asked about, also after a stop: an agent may write
# anything.
ATTEMPTS = 3


def annotator_config(options: Mapping[str, Any], goal: str) -> AnnotatorConfig:
    """The config of an annotator that says whether a text is `goal`; `options`: see `TextJudge`."""
    prompt = PromptChoice()
    answer = AnswerMode()
    if annotators.annotator_class(options["annotator"]).reads_prompt:
        prompt = PromptChoice(file=options["prompt"] or str(FOLDER / "comments" / "toxicity.yaml"))
        answer = AnswerMode(mode=options["answer_mode"])
    server = OpenaiServer(model=options["model"])
    if options["server"]:
        server = replace(server, base_url=options["server"])
    return AnnotatorConfig(
        annotator=options["annotator"],
        goal=goal,
        prompt=prompt,
        answer=answer,
        sampling=AnswerSampling(temperature=0.0, top_p=1.0, max_tokens=256),
        lexicon=LexiconFile(file=options["lexicon"] or "comments.yaml"),
        model=ModelJudge(model=options["model"]),
        vllm=VllmEngine(model=options["model"]),
        openai=server,
    )


class TextJudge:
    """Asks an annotator whether texts are of a kind, such as 'rude'.

    Safe for several threads: environments score their replies at the same time.

    Attributes:
      loads_model: whether the annotator loads a language model into this process.
    """

    def __init__(self, section: str, options: Mapping[str, Any]) -> None:
        """Opens no store and asks nobody.

        Args:
          section: the config section that has the options, for errors.
          options: `annotator`, `prompt`, `answer_mode`, `lexicon`, `server`, `model`, and the
              folder `store`.
        """
        self._section = section
        self._options = options
        self._probabilities: dict[tuple[str, str], float] = {}
        self._hashers: dict[str, QuestionHasher] = {}
        self._lock = threading.Lock()

    @property
    def loads_model(self) -> bool:
        return annotators.annotator_class(self._options["annotator"]).loads_model

    def check(self, goal: str) -> None:
        """Raises UserError where the annotator cannot be used, as far as that is known without
        asking it.
        """
        annotators.check_annotator(annotator_config(self._options, goal), SINGLE)

    def probabilities(
        self,
        goal: str,
        texts: Sequence[str],
        report: Callable[[int], None] = lambda done: None,
        stopped: Callable[[], bool] = never,
    ) -> dict[str, float]:
        """Text -> the probability that it is `goal`, in [0, 1]; `report` is called with the number
        of new texts done.

        Raises:
          StoppedError: `stopped` said so between two answers.
          UserError: the annotator has no answer to one of the texts.
        """
        new = [text for text in texts if (goal, text) not in self._probabilities]
        if new:
            answers = self._answers(goal, new, report, stopped)
            self._probabilities |= {
                (goal, text): self._probability(goal, text, answer)
                for text, answer in answers.items()
            }
        return {text: self._probabilities[goal, text] for text in texts}

    # One store for all calls: with a store of its own, each reply would read all files again.
    @functools.cached_property
    def _store(self) -> AnswerStore:
        return AnswerStore(self._options["store"])

    def _annotator(self, goal: str) -> Annotator:
        return annotators.make_annotator(annotator_config(self._options, goal), SINGLE)

    def _answers(
        self,
        goal: str,
        texts: Sequence[str],
        report: Callable[[int], None],
        stopped: Callable[[], bool],
    ) -> dict[str, StoredAnswer]:
        """Answers from the store, and from the annotator for the rest."""
        # Once for each goal: for its identity an annotator by a model reads the model's files.
        if goal not in self._hashers:
            self._hashers[goal] = QuestionHasher(self._annotator(goal).identity)
        hasher = self._hashers[goal]
        questions = [
            Question(hasher.id_of_texts((text,), SINGLE), (text,), SINGLE) for text in texts
        ]

        answers: dict[str, StoredAnswer] = {}
        # A store is for one thread.
        with self._lock:
            for question in questions:
                answer = self._store.get(question.id)
                if answer is not None:
                    answers[question.id] = answer

        from_store = sum(is_settled(answer, ATTEMPTS) for answer in answers.values())
        if from_store < len({question.id for question in questions}):
            # A new one for each call, as the session closes it.
            annotator = self._annotator(goal)
            store_dir = self._options["store"]
            with AnnotationSession(
                annotator, store_dir, SINGLE, attempts=ATTEMPTS, stopped=stopped
            ) as session:
                answers = session.ask(
                    questions,
                    answers,
                    report=lambda: report(from_store + session.telemetry.asked),
                )
                # `ask` leaves questions only after a stop.
                if session.unsettled(questions, answers):
                    raise StoppedError
        return {question.items[0]: answers[question.id] for question in questions}

    def _probability(self, goal: str, text: str, answer: StoredAnswer) -> float:
        if answer.label == UNKNOWN:
            raise UserError(
                f"config.{self._section}.annotator: has no answer to whether {text[:40]!r} is {goal}: give another model or prompt"
            )
        return float((answer.probabilities or SINGLE.certain(answer.label))[YES])
