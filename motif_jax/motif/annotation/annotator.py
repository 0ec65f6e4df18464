"""The interface of annotators: questions in, labels with probabilities out."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from motif_jax.core import config as checks
from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import PAIR, Form
from motif_jax.motif.annotation.config import AnnotatorConfig

# Name in config.annotator -> class. Imported on use: vllm and openai are optional installs.
BUILT_IN = {
    "score": "motif_jax.motif.annotation.baselines:ScoreAnnotator",
    "return": "motif_jax.motif.annotation.baselines:ReturnAnnotator",
    "random": "motif_jax.motif.annotation.baselines:RandomAnnotator",
    "lexicon": "motif_jax.motif.annotation.lexicon:LexiconAnnotator",
    "vllm": "motif_jax.motif.annotation.vllm_engine:VllmAnnotator",
    "openai": "motif_jax.motif.annotation.openai_client:OpenAIAnnotator",
    "model": "motif_jax.motif.model_judge:ModelAnnotator",
}
# The value of a key that each annotator chooses for itself, see `settled`.
AUTO = "auto"
# Keys that only annotators with a prompt read, and their neutral values.
_OF_PROMPTS = {
    "answer.mode": (AUTO, "analysis"),
    "prompt.version": (AUTO, "default"),
    "prompt.file": ("",),
}
Config = TypeVar("Config", bound=AnnotatorConfig)


@dataclasses.dataclass(frozen=True)
class Question:
    """A question to an annotator: texts (`items`), or a `pair` of a dataset for those that read its numbers.

    `id` has 32 hex digits (`questions.QuestionHasher`); `attempt` counts earlier answers without a verdict, and varies the seed.
    """

    id: str
    items: tuple[str, ...] = ()
    form: Form = PAIR
    pair: int | None = None
    attempt: int = 0


@dataclasses.dataclass(frozen=True)
class Answer:
    """An annotator's answer to one question; `probabilities` are of the form's verdicts, None for certainty in `label`.

    `tokens` of all turns: of prompts, of answers, and of the cached part of prompts. `turns` have {"role", "content"}. `mass` is
    the verdicts' probability together, where read from log-probabilities; `note` says why a label is UNKNOWN if not by the text.
    `retried`: asked again for a verdict; `cut`: turns that ended before the model had answered.
    """

    label: int
    probabilities: tuple[float, ...] | None = None
    tokens: tuple[int, int, int] = (0, 0, 0)
    turns: tuple[Mapping[str, str], ...] = ()
    mass: float | None = None
    note: str = ""
    retried: bool = False
    cut: int = 0


class Preview(NamedTuple):
    """The prompt of a question, for the dry run; `exact` tokens are counted by the model's tokenizer, None without a model."""

    text: str
    tokens: int | None = None
    exact: bool = True


class Prices(NamedTuple):
    """Prices of a million tokens: of prompts, of a prompt's cached part, of answers."""

    prompt: float
    cached: float
    completion: float

    def of(self, prompt: float, completion: float, cached: float = 0.0) -> float:
        """The cost of so many tokens; cached ones are part of the prompt's."""
        return ((prompt - cached) * self.prompt + cached * self.cached + completion * self.completion) / 1e6


class Annotator(abc.ABC):
    """Judges questions of one form.

    `config.annotator` names a subclass, one of BUILT_IN or `module:Class` anywhere. It is made by
    `Class(config, form, dataset)`: the caller's whole config, the form of verdict, and an open `PairsDataset` or None.
    `check` is called before. `start`, `preview`, `live`, `summary` and `close` are for annotators with a model.

    Attributes:
      forms: class attribute, the possible forms of its verdicts.
      reads_items: class attribute. True: a question is its texts. False: each pair of a dataset is its own question.
      reads_prompt: class attribute, whether it reads config.prompt and config.answer.
      default_mode, default_prompt, default_orders: class attributes, what answer.mode, prompt.version and orders are where they
        are left at auto.
      in_background: class attribute, whether it has `submit`, `ping`, `quiet_seconds` and `concurrency`, and so answers a training
        that does not wait for it.
      beside_training: class attribute, whether a training can ask it.
      loads_model: class attribute, whether it loads a language model into its process, so that one process asks it for all.
      questions_at_once: class attribute, most questions that a training which waits for it asks in one call.
      identity: JSON-able; all that an answer depends on besides the question and `config.options` (model and revision, prompt texts, sampling, the
        dataset's content hash where its numbers are read). Part of the manifest and of every question's id.
      short_name: default name of the label file, without a dot (`llama70b_msg_defaultgoal_default`).
      prices: of its model's tokens, None where nothing is paid.
    """

    forms: tuple[Form, ...] = (PAIR,)
    reads_items: bool = True
    reads_prompt: bool = False
    default_mode: str = "analysis"
    default_prompt: str = "default"
    default_orders: str = "once"
    in_background: bool = False
    beside_training: bool = True
    loads_model: bool = False
    questions_at_once: int = 256
    identity: Mapping[str, Any]
    short_name: str
    prices: Prices | None = None

    @abc.abstractmethod
    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any) -> None:
        """Sets all attributes without loading a model: a run that finds all its answers loads none."""

    @classmethod  # noqa: B027 (there may be nothing to check)
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        """Raises UserError for a bad value, without loading a model or asking a server."""

    @abc.abstractmethod
    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer] | None]:
        """Yields (position in `questions`, answer) once for every question, in any order.

        Answers before an exception are kept. During long waits it yields None now and then, so that the caller can write and
        stop. It may be closed at any yield.
        """

    def start(self) -> None:  # noqa: B027 (nothing to do without a model)
        """Loads the model or reaches the server; called once before the first question, if there is any."""

    def preview(self, question: Question) -> Preview:
        return Preview("\n----\n".join(question.items) if self.reads_items else f"pair {question.pair}")

    def live(self) -> dict[str, float | int | str]:
        """Additional figures for the progress line."""
        return {}

    def summary(self) -> dict[str, Any]:
        """Additional figures for summary.json."""
        return {}

    def close(self) -> None:  # noqa: B027 (as above)
        """Frees the engine or the connections."""


def own_options(config: AnnotatorConfig) -> dict[str, Any]:
    """The values of `config.options`, for an annotator from outside the package. Raises UserError: they are no JSON object."""
    # It imports this module.
    from motif_jax.motif.annotation.chat import json_option

    return json_option(config, "options")


def annotator_class(name: str) -> type[Annotator]:
    """The class that `config.annotator` names. Raises UserError: there is none."""
    if name in BUILT_IN:
        return entry_points.own("annotator", BUILT_IN[name])
    if not entry_points.is_entry_point(name):
        raise UserError(
            f"config.annotator={name}: must be one of {', '.join(BUILT_IN)}, or module:Class for one of your own"
        )
    found = entry_points.load("annotator", name)
    if not (isinstance(found, type) and issubclass(found, Annotator)):
        raise UserError(
            f"config.annotator={name}: must be a class of motif_jax.motif.annotation.annotator.Annotator"
        )
    return found


def settled(config: Config) -> Config:
    """`config` with the annotator's own choices in place of auto."""
    chosen = annotator_class(config.annotator)
    answer, prompt = config.answer, config.prompt
    if answer.mode == AUTO:
        answer = dataclasses.replace(answer, mode=chosen.default_mode)
    if prompt.version == AUTO:
        prompt = dataclasses.replace(prompt, version=chosen.default_prompt)
    changes: dict[str, Any] = {"answer": answer, "prompt": prompt}
    if getattr(config, "orders", None) == AUTO:
        changes["orders"] = chosen.default_orders
    return dataclasses.replace(config, **changes)


def check_annotator(config: AnnotatorConfig, form: Form = PAIR) -> None:
    """Raises UserError when the config's annotator or its settings are not usable for questions of `form`."""
    annotator = annotator_class(config.annotator)
    if form not in annotator.forms:
        known = " or ".join(one.name for one in annotator.forms)
        raise UserError(
            f"config.annotator={config.annotator}: answers no questions of form {form.name}, only {known}"
        )
    if not annotator.reads_prompt:
        for key, silent in _OF_PROMPTS.items():
            allowed = f"left at '{silent[0]}': the annotator {config.annotator} reads no prompt"
            checks.require_key(config, key, checks.dotted(config, key) in silent, allowed)
    if own_options(config) and config.annotator in BUILT_IN:
        allowed = f"left at '{{}}': the annotator {config.annotator} has keys of its own"
        checks.require(False, "options", config.options, allowed)
    annotator.check(settled(config), form)


def make_annotator(config: AnnotatorConfig, form: Form = PAIR, dataset: Any = None) -> Annotator:
    """The annotator that `config.annotator` names, for questions of `form`.

    `config.options` become part of its identity, so that answers under other options are never taken for its own.
    """
    annotator = annotator_class(config.annotator)(settled(config), form, dataset)
    if options := own_options(config):
        annotator.identity = {**annotator.identity, "options": options}
    return annotator
