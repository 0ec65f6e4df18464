"""The seam between the annotate stage and whatever judges a pair: questions in, labels with probabilities out.

An annotator is a module of this package with two functions:

    check(config) -> None              raises UserError for a bad value, before any work, without loading a model
    make(config, dataset) -> Annotator

`config` is the annotate stage's whole config and `dataset` an open `datasets.pairs.PairsDataset`.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from motif_jax.support.errors import UserError

FIRST, SECOND, TIE, UNKNOWN = 0, 1, 2, 3
LABEL_NAMES = ("first", "second", "tie", "unknown")

# Name in config.annotator -> module of this package. Imported on use: vllm and openai are optional installs.
MODULES = {
    "score": "baselines",
    "return": "baselines",
    "random": "baselines",
    "lexicon": "lexicon",
    "vllm": "vllm_engine",
    "openai": "openai_client",
}


@dataclasses.dataclass(frozen=True)
class Question:
    """One ordered pair to be judged.

    Attributes:
        id: 32 hex digits, the hash of the annotator's identity and of what is asked (`questions.question_id`).
        captions: the texts of the first and of the second sub-sequence; empty strings for annotators that do
            not read captions.
        pair: index of the pair in the dataset, for annotators that read the dataset's numbers; None for
            questions about captions, which many pairs may share.
        attempt: 0 when asked for the first time, n when n earlier answers held no verdict (varies the seed).
    """

    id: str
    captions: tuple[str, str] = ("", "")
    pair: int | None = None
    attempt: int = 0


@dataclasses.dataclass(frozen=True)
class Answer:
    """What an annotator says to one question.

    Attributes:
        label: FIRST, SECOND, TIE or UNKNOWN.
        probabilities: P(first), P(second), P(tie), summing to 1; None means certainty in `label`.
        prompt_tokens, completion_tokens, cached_tokens: cost, all turns together; 0 where there is no model.
        turns: the conversation, a sequence of {"role", "content"}; empty where there is none.
        mass: probability of the three verdicts together, where they were read from log-probabilities.
        note: why the label is UNKNOWN when the reason is not the text ("prompt too long"); '' otherwise.
    """

    label: int
    probabilities: tuple[float, float, float] | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    turns: tuple[Mapping[str, str], ...] = ()
    mass: float | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Preview:
    """What a question would look like.

    Attributes:
        text: exactly what the model would read, or the captions where there is no model.
        tokens: its length; None where there is no model.
        exact: False if `tokens` is a guess because the model's tokenizer is not at hand.
    """

    text: str
    tokens: int | None = None
    exact: bool = True


class Annotator(abc.ABC):
    """Judges questions. `start`, `preview` and `close` are there for those with a model.

    Attributes:
        identity: JSON-able; everything that an answer depends on besides the question itself (annotator, goal,
            model and revision, prompt texts, sampling, lexicon hash; for annotators that read the dataset's
            numbers also its content hash). It goes into the manifest and into every question's id.
        short_name: default name of the label file, without a dot (`llama70b_msg_defaultgoal_default`).
        reads_captions: True: a question is an ordered pair of captions, asked once however many pairs hold it,
            and equal captions are a tie that is not asked. False: each pair is its own question.
    """

    identity: Mapping[str, Any]
    short_name: str
    reads_captions: bool

    @abc.abstractmethod
    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        """Yields (position in `questions`, answer) once for every question, in any order.

        What was yielded is kept when a later question raises.
        """

    def start(self) -> None:  # noqa: B027 (nothing to do without a model)
        """Loads the model or reaches the server; called once before the first question, if there is any.

        Everything above must be known without it: a run that finds all its answers never loads a model.
        """

    def preview(self, question: Question) -> Preview:
        """What a question would look like, without asking it."""
        return Preview("\n----\n".join(question.captions) if self.reads_captions else f"pair {question.pair}")

    def close(self) -> None:  # noqa: B027 (as above)
        """Frees the engine or the connections."""


def certain(label: int) -> tuple[float, float, float]:
    """One-hot P(first), P(second), P(tie) of a known label; NaN for UNKNOWN."""
    if label == UNKNOWN:
        return (float("nan"),) * 3
    return (float(label == FIRST), float(label == SECOND), float(label == TIE))


def _module(name: str) -> Any:
    if name not in MODULES:
        raise UserError(f"config.annotator={name}: must be one of {', '.join(MODULES)}")
    return importlib.import_module(f"motif_jax.annotation.{MODULES[name]}")


def check_annotator(config: Any) -> None:
    """Raises UserError when the config's annotator or its settings are not usable."""
    _module(config.annotator).check(config)


def make_annotator(config: Any, dataset: Any) -> Annotator:
    """The annotator that `config.annotator` names, ready to answer."""
    return _module(config.annotator).make(config, dataset)
