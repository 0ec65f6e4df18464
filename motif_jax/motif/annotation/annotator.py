"""The interface of annotators: questions in, labels with probabilities out."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from motif_jax.core import config as checks
from motif_jax.core.entry_points import Registry
from motif_jax.core.errors import UserError, printable
from motif_jax.core.verdicts import PAIR, UNKNOWN, Form
from motif_jax.motif.annotation.config import AnnotatorConfig, json_option

# vllm and openai are optional installs: a registry imports a part when it is loaded.
ANNOTATORS = Registry(
    "annotator",
    {
        "score": "motif_jax.motif.annotation.baselines:ScoreAnnotator",
        "return": "motif_jax.motif.annotation.baselines:ReturnAnnotator",
        "random": "motif_jax.motif.annotation.baselines:RandomAnnotator",
        "lexicon": "motif_jax.motif.annotation.lexicon:LexiconAnnotator",
        "vllm": "motif_jax.motif.annotation.vllm_engine:VllmAnnotator",
        "openai": "motif_jax.motif.annotation.openai_client:OpenAIAnnotator",
        "model": "motif_jax.motif.model_judge:ModelAnnotator",
    },
    base="motif_jax.motif.annotation.annotator:Annotator",
    custom="module:Class for one of your own",
)
# The value of a key that each annotator chooses for itself, see `with_annotator_defaults`.
AUTO = "auto"
# Keys that only annotators with a prompt read -> the values that every annotator accepts.
_PROMPT_KEYS = {
    "answer.mode": (AUTO, "analysis"),
    "prompt.version": (AUTO, "default"),
    "prompt.file": ("",),
}
# Key -> the annotator that reads it, and the values that every other one accepts: the default, and
# those of configs/annotate.py and configs/oni.py, whose variants another annotator may use.
_KEYS_OF_ONE = {
    "lexicon.file": ("lexicon", ("", "minigrid.yaml", "crafter.yaml")),
    "model.model": ("model", ("",)),
    "openai.model": ("openai", ("", "Meta-Llama-3.1-8B-Instruct")),
    "vllm.model": ("vllm", ("", "meta-llama/Llama-2-70b-chat-hf")),
}
Config = TypeVar("Config", bound=AnnotatorConfig)
# How far probabilities that an annotator has rounded may be from the sum 1.
_SUM_TOLERANCE = 1e-3
# Probabilities that differ by less are equal.
_EQUAL = 1e-6


@dataclasses.dataclass(frozen=True)
class Question:
    """A question to an annotator: texts (`items`), or a `pair` of a dataset for those that read its
    numbers.

    `id` has 32 hex digits (`questions.QuestionHasher`); `attempt` counts earlier answers without a
    verdict, and varies the seed.
    """

    id: str
    items: tuple[str, ...] = ()
    form: Form = PAIR
    pair: int | None = None
    attempt: int = 0


@dataclasses.dataclass(frozen=True)
class Answer:
    """An annotator's answer to one question.

    Attributes:
      label: index of the verdict in the question's form, or UNKNOWN.
      probabilities: of the form's verdicts in their order (first, second, tie; or no, yes), with
        sum 1; none of them is above that of `label`, unless this is a tie or UNKNOWN.
        `train_reward --config.labels.soft=True` learns them. None where the annotator is certain of
        `label`.
      tokens: sums over all turns: of prompts, of answers, of the part of prompts that the server
        had cached.
      text: what a language model said, of two turns both; '' of other annotators, and where only
        probabilities were read.
      mass: sum of the verdicts' probabilities before they were normalised; None where no
        log-probabilities were read.
      note: why the label is UNKNOWN; '' where the model said no verdict.
      retried: whether the model was asked a second time for a verdict.
      cut: number of turns that ended before the model had answered.
    """

    label: int
    probabilities: tuple[float, ...] | None = None
    tokens: tuple[int, int, int] = (0, 0, 0)
    text: str = ""
    mass: float | None = None
    note: str = ""
    retried: bool = False
    cut: int = 0


class Preview(NamedTuple):
    """The prompt of a question, for the dry run.

    `tokens` is None for an annotator without a language model; `exact`: the model's tokenizer
    counted them, else they are an estimate from the length of the text.
    """

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
        return (
            (prompt - cached) * self.prompt + cached * self.cached + completion * self.completion
        ) / 1e6


class ServerError(UserError):
    """A server did not answer. `cause`: the fault without advice; `kind`: a word for one that may
    pass, else ''.
    """

    def __init__(self, cause: str, kind: str) -> None:
        super().__init__(
            f"{cause}; everything answered so far is kept, the same command resumes from there"
        )
        self.cause = printable(cause)
        self.kind = kind


class Annotator(abc.ABC):
    """Judges questions of one form.

    `config.annotator` names a subclass: one of ANNOTATORS, or `module:Class` for one that stands
    outside the package. It is constructed by `Class(config, form, dataset)`: the caller's whole
    config, the form of verdict, and an open `PairsDataset` or None.

    A subclass must have `identity`, `short_name` and `annotate`; docs/annotation.md has an example
    of 20 lines. The order of calls is `check`, the constructor, `start` (only if a question has no
    stored answer), `annotate` as often as needed, `close`. `start`, `preview`, `live`, `summary`
    and `close` are for annotators with a model.

    To judge with a server that speaks the OpenAI protocol nothing has to be written:
    annotator=openai, openai.base_url and openai.model (of a training annotator.kind and
    annotator.openai.*). For a server with another protocol, a subclass of `chat.ChatAnnotator`
    inherits prompts, parsing and the second question where a verdict is missing
    (docs/annotation.md, "A server with another protocol"); it sends the turns, and asks again where
    the network fails. A training does not wait for it where it has what `in_background` names.

    Attributes:
      forms: class attribute, the possible forms of its verdicts.
      reads_items: class attribute. True: a question is its texts. False: each pair of a dataset is
        its own question.
      reads_prompt: class attribute, whether it reads config.prompt and config.answer.
      default_mode, default_prompt, default_orders: class attributes, the values of answer.mode,
        prompt.version and orders where the config has auto.
      in_background: class attribute, whether a training asks by `submit` and does not wait for the
        answer. The class then has, thread safe: `submit(question) -> Future[Answer]`; `ping() ->
        Future[None]`, which ends when the server answers; `quiet_seconds() -> float`, in which the
        server wants no requests; `concurrency`, the limit of questions in flight.
        `openai_client.OpenAIAnnotator` is the example. A future with `ServerError` is asked
        again later, and the training goes on; only at its start one without a `kind`, or after
        `annotator.wait_seconds`, ends it. Any other error always does. Where `default_orders` is
        'both' a training waits for the answers.
      loads_model: class attribute, whether it loads a language model into its process. Of a
        training on several hosts, one process then asks for all.
      questions_at_once: class attribute, most questions that a training which waits for it asks in
        one call.
      identity: an object that JSON can hold, with all that an answer depends on besides the
        question and `config.options`: model and revision, prompt texts, sampling, the rule by which
        a label is read, the dataset's content hash where its numbers are read. It is part of the
        manifest and of every question's id, so that stored answers of another identity are never
        taken for its own.
      short_name: default name of the label file, without a dot
        (`llama70b_msg_defaultgoal_default`).
      prices: prices of its model's tokens, None where nothing is paid.
      nethack_key: where its questions or rules are about NetHack, the config key of a file with
        others; else ''. A dataset of another game is annotated with a warning.
    """

    forms: tuple[Form, ...] = (PAIR,)
    reads_items: bool = True
    reads_prompt: bool = False
    default_mode: str = "analysis"
    default_prompt: str = "default"
    default_orders: str = "once"
    in_background: bool = False
    loads_model: bool = False
    questions_at_once: int = 256
    identity: Mapping[str, Any]
    short_name: str
    prices: Prices | None = None
    nethack_key: str = ""

    @abc.abstractmethod
    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any) -> None:
        """Sets all attributes without loading a model: a run whose answers are all in the store
        loads none.
        """

    @classmethod  # noqa: B027 (there may be nothing to check)
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        """Raises UserError for a bad value, without loading a model or asking a server."""

    @abc.abstractmethod
    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer] | None]:
        """Yields (position in `questions`, answer) once for every question, in any order.

        Answers that were yielded before an exception are written. During long waits it yields None
        a few times a second, so that the caller can write answers and notice that it should stop.
        The caller may close the iterator at any yield.
        """

    def start(self) -> None:  # noqa: B027 (nothing to do without a model)
        """Loads the model or reaches the server; called once before the first question, if there is
        any.
        """

    def preview(self, question: Question) -> Preview:
        """The text that the annotator would read, for the dry run."""
        return Preview(
            "\n----\n".join(question.items) if self.reads_items else f"pair {question.pair}"
        )

    def live(self) -> dict[str, float | int | str]:
        """Additional figures for the progress line."""
        return {}

    def summary(self) -> dict[str, Any]:
        """Additional figures for summary.json."""
        return {}

    def close(self) -> None:  # noqa: B027 (as above)
        """Frees the engine or the connections."""


def check_answer(annotator: Annotator, question: Question, answer: Answer) -> None:
    """Raises UserError for an answer that `Answer` does not allow, as one from outside the package
    may be.
    """
    form = question.form
    shares = answer.probabilities
    allowed = ""
    if answer.label not in form.labels:
        allowed = f"a label among {', '.join(map(str, form.labels))}"
    elif shares is not None:
        if len(shares) != len(form.verdicts):
            allowed = f"{len(form.verdicts)} probabilities, of {', '.join(form.verdicts)}"
        # Written with `not`, so that NaN is refused, too.
        elif not all(share >= 0 for share in shares) or not abs(sum(shares) - 1) <= _SUM_TOLERANCE:
            allowed = "probabilities of 0 or more whose sum is 1"
        elif (
            answer.label not in (form.undecided, UNKNOWN)
            and shares[answer.label] < max(shares) - _EQUAL
        ):
            allowed = "the label of the most probable verdict"
    if allowed:
        kind = type(annotator)
        raise UserError(
            f"the annotator {kind.__module__}:{kind.__qualname__} gave a question of form {form.name} the label {answer.label} with "
            f"probabilities {shares}: must be {allowed}"
        )


def own_options(config: AnnotatorConfig) -> dict[str, Any]:
    """The values of `config.options`, for an annotator from outside the package."""
    return json_option(config, "options")


def annotator_class(name: str) -> type[Annotator]:
    """The class that `config.annotator` names. Raises UserError: there is none."""
    chosen: type[Annotator] = ANNOTATORS.load(name)
    return chosen


def with_annotator_defaults(config: Config) -> Config:
    """`config` with the annotator's defaults in place of auto."""
    annotator = annotator_class(config.annotator)
    answer = config.answer
    if answer.mode == AUTO:
        answer = dataclasses.replace(answer, mode=annotator.default_mode)
    prompt = config.prompt
    if prompt.version == AUTO:
        prompt = dataclasses.replace(prompt, version=annotator.default_prompt)
    changes: dict[str, Any] = {"answer": answer, "prompt": prompt}
    # `orders` is a key of `annotate` alone; a training asks in one order.
    if getattr(config, "orders", None) == AUTO:
        changes["orders"] = annotator.default_orders
    return dataclasses.replace(config, **changes)


def check_annotator(config: AnnotatorConfig, form: Form = PAIR) -> None:
    """Raises UserError when the config's annotator or its settings are not usable for questions of
    `form`.
    """
    annotator = annotator_class(config.annotator)
    if form not in annotator.forms:
        forms = " or ".join(possible.name for possible in annotator.forms)
        raise UserError(
            f"config.annotator={config.annotator}: answers no questions of form {form.name}, only {forms}"
        )

    if not annotator.reads_prompt:
        for key, neutral in _PROMPT_KEYS.items():
            allowed = f"left at '{neutral[0]}': the annotator {config.annotator} reads no prompt"
            checks.require_key(config, key, checks.dotted(config, key) in neutral, allowed)

    if own_options(config) and config.annotator in ANNOTATORS.parts:
        allowed = f"left at '{{}}': the annotator {config.annotator} has keys of its own"
        checks.require(False, "options", config.options, allowed)

    annotator.check(with_annotator_defaults(config), form)


def check_keys_of_others(config: AnnotatorConfig) -> None:
    """Raises UserError where the config names a model or a lexicon of an annotator that is not the
    chosen one. Annotators from outside the package may read any key.
    """
    if config.annotator not in ANNOTATORS.parts:
        return
    for key, (reader, neutral) in _KEYS_OF_ONE.items():
        is_neutral = checks.dotted(config, key) in neutral
        allowed = f"left at '': the annotator {reader} reads it, not {config.annotator}"
        checks.require_key(config, key, is_neutral or config.annotator == reader, allowed)


def make_annotator(config: AnnotatorConfig, form: Form = PAIR, dataset: Any = None) -> Annotator:
    """The annotator that `config.annotator` names, for questions of `form`.

    `config.options` become part of its identity, so that answers under other options are never
    taken for its own.
    """
    make = annotator_class(config.annotator)
    annotator = make(with_annotator_defaults(config), form, dataset)
    options = own_options(config)
    if options:
        annotator.identity = {**annotator.identity, "options": options}
    return annotator
