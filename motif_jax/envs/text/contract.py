"""The contract of a text task: observations, environments, policies, and how they come together (Snell et al. 2022).

An action is a text. All chance comes from the generator that an episode is given, so that a seed is an episode.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from motif_jax.datasets.dialogues.dialogue import Dialogue, Dialogues, DialogueStream
from motif_jax.datasets.dialogues.items import TextTokenizer
from motif_jax.schema import Key
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError

# Texts -> a number of each, by whatever judges them: an annotator, a model.
Scorer = Callable[[Sequence[str]], Sequence[float]]


class Observation(ABC):
    """The state of a dialogue; immutable."""

    @abstractmethod
    def to_sequence(self) -> Dialogue:
        """The dialogue so far, with the rewards that were paid, and whether it has ended."""


class Outcome(NamedTuple):
    """The result of an action: the next observation, the reward, and whether the dialogue has ended."""

    observation: Any
    reward: float
    terminal: bool


class TextEnvironment(ABC):
    """The other side of a dialogue, one episode at a time."""

    @abstractmethod
    def reset(self, rng: np.random.Generator, start: Any = None) -> Any:
        """Begins an episode, at `start` (an observation of this task) or at the beginning; returns its observation."""

    @abstractmethod
    def step(self, action: str) -> Outcome:
        """Says `action`. After the episode's end it raises ValueError."""


class TextPolicy(ABC):
    """A policy that speaks to the environment."""

    @abstractmethod
    def act(self, observation: Any, rng: np.random.Generator) -> str:
        """The next utterance."""


class Step(NamedTuple):
    """One step of an episode: on `observation`, `action` was said and `reward` paid."""

    observation: Any
    action: str
    reward: float


class TextEpisode(NamedTuple):
    """An episode: the observation at its end, and the steps that led there."""

    observation: Any
    steps: tuple[Step, ...]


def interact(
    environment: TextEnvironment, policy: TextPolicy, rng: np.random.Generator, start: Any = None
) -> TextEpisode:
    """Plays an episode to its end; from `start` on, where that is given."""
    observation, steps = environment.reset(rng, start), []
    terminal = start is not None and observation.to_sequence().terminal
    while not terminal:
        action = policy.act(observation, rng)
        outcome = environment.step(action)
        steps.append(Step(observation, action, float(outcome.reward)))
        observation, terminal = outcome.observation, outcome.terminal
    return TextEpisode(observation, tuple(steps))


class PlayedDialogues:
    """A stream of dialogues (`DialogueStream`): a policy's episodes, one after the other."""

    def __init__(self, environment: TextEnvironment, policy: TextPolicy) -> None:
        self._environment, self._policy = environment, policy

    def sample(self, rng: np.random.Generator, count: int, first: int = 0) -> Dialogues:
        """Plays `count` episodes."""
        del first
        episodes = (interact(self._environment, self._policy, rng) for _ in range(count))
        return Dialogues.of(episode.observation.to_sequence() for episode in episodes)


class ListedDialogues:
    """Dialogues that there are, by their numbers, as a `DialogueStream`."""

    def __init__(self, dialogues: Sequence[Dialogue] | Dialogues) -> None:
        self._dialogues = dialogues

    def sample(self, rng: np.random.Generator, count: int, first: int = 0) -> Dialogues:
        del rng
        found = self._dialogues[first : first + count]
        return found if isinstance(found, Dialogues) else Dialogues.of(found)


class TextTask(ABC):
    """A text task. It is made from its options, in worker processes too.

    Class attributes:
      name: the section of configs that holds its options, for errors.
      kinds: the kinds of dialogues that `stream` knows.
      keys: option -> its `Key`: default, type, range and help.
      defaults: option -> its value where none is given; of `keys`, if a task has them.
      switches: what the names of its compat switches begin with; the rest of a name is an option.
      follow: option -> options that hold for its value alone: where another one is given, they are not taken over from elsewhere.
      patient: an episode may take any time, as one with a server does; else it counts as hung after minutes. A task may decide
        it by its options.
    """

    name: ClassVar[str] = "options"
    kinds: ClassVar[Sequence[str]] = ("games",)
    keys: ClassVar[Mapping[str, Key]] = {}
    defaults: ClassVar[Mapping[str, Any]] = {}
    switches: ClassVar[str] = ""
    follow: ClassVar[Mapping[str, Sequence[str]]] = {}
    patient: bool = False

    def __init_subclass__(cls) -> None:
        if cls.keys and "defaults" not in cls.__dict__:
            cls.defaults = {name: key.default for name, key in cls.keys.items()}

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises UserError for an option that is not there, or a value of another type than its default."""
        unknown = sorted(set(options) - set(self.defaults))
        if unknown:
            raise UserError(
                f"config.options: {type(self).__name__} has no option {', '.join(unknown)}; "
                f"must be among {', '.join(self.defaults) or 'none'}"
            )
        for key, value in options.items():
            if described := self.keys.get(key):
                described.require(f"{self.name}.{key}", tuple(value) if isinstance(value, list) else value)
                continue
            kind, given = _kind(self.defaults[key]), _kind(value)
            fits = kind in ("", given) or (kind, given) == ("a number", "a whole number")
            checks.require(fits, f"{self.name}.{key}", value, kind)
        self.options: dict[str, Any] = {**self.defaults, **options}

    @abstractmethod
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer of its texts."""

    @abstractmethod
    def environment(self) -> TextEnvironment:
        """A new environment."""

    @abstractmethod
    def policy(self, name: str) -> TextPolicy:
        """A policy of the task's own.

        Raises:
          UserError: there is none of that name.
        """

    def outcome(self, dialogue: Dialogue) -> dict[str, float]:
        """Further measures of an ended episode, besides its return; `success` is 0 or 1."""
        del dialogue
        return {}

    def check(self, kind: str, policy: str) -> None:
        """Raises UserError where `stream` would, as far as that is known without work."""
        if kind not in self.kinds:
            raise UserError(f"config.kind={kind}: must be one of {', '.join(self.kinds)}")

    def check_episodes(self) -> None:  # noqa: B027 (there may be nothing to read)
        """Raises UserError where episodes cannot be played as the task is, without `prepare`, for want of files; they are read."""

    def files(self) -> dict[str, Path]:
        """Files that its dialogues follow from, by the options that name them; 'OPTION (FILE)' of a folder's."""
        named = {key: value for key, value in self.options.items() if isinstance(value, str)}
        return {key: Path(value) for key, value in named.items() if os.path.isfile(value)}

    def prepare(self, kind: str, policy: str, folder: Path) -> dict[str, Any]:
        """Makes files that `stream` needs, in `folder`, where they are not there; returns the options of a task that reads them."""
        del kind, policy, folder
        return self.options

    def stream(self, kind: str, policy: str) -> DialogueStream:
        """Dialogues of one of `kinds`; 'games' are those that `policy` plays."""
        assert kind in self.kinds
        return PlayedDialogues(self.environment(), self.policy(policy))

    def count(self, kind: str) -> int | None:
        """The number of dialogues of that kind, numbered by `first` of `sample`; None if they are endless."""
        del kind
        return None

    def endless(self, kind: str) -> bool:
        """Whether there is no end of the dialogues of that kind; unlike `count`, known before there are files and scores."""
        return self.count(kind) is None

    def learned_tokens(self) -> int:
        """Tokens of a tokenizer that is to be learned from the task's dialogues, and goes into its option `tokenizer`; 0 for none."""
        return 0

    def scored_by(self) -> str:
        """The score that its rewards depend on (such as 'toxicity'), which `use_scorer` provides; '' for none."""
        return ""

    def use_scorer(self, scorer: Scorer) -> None:
        """Takes what scores texts that are not known beforehand; of tasks alone whose `scored_by` names something."""
        raise TypeError(f"{type(self).__name__} has rewards that no scorer decides: scored_by() gives ''")

    def texts_to_score(self, kind: str) -> Sequence[str]:
        """Distinct texts of the data of that kind whose scores are not known; they go into a file, the option `scores`."""
        del kind
        return ()

    def known_scores(self) -> Mapping[str, float]:
        """Text -> its score, by the option `scores`; empty where nothing is known."""
        return {}

    def finish(self, kind: str, folder: Path) -> None:  # noqa: B027 (there may be nothing to do)
        """Makes files of all dialogues of that kind, once they are in `folder`."""

    def failures(self) -> int:
        """Requests of this process to a server that failed."""
        return 0

    def at_a_time(self, kind: str) -> int:
        """The number of dialogues (or groups of them) that are best drawn together."""
        del kind
        return 64

    def facts(self, kind: str) -> dict[str, Any]:
        """Facts about the data of that kind, once there is a stream of it."""
        del kind
        return {}


def _kind(value: Any) -> str:
    """What an option's value is, in words; '' for None, which says nothing of others."""
    names: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "True or False"),
        (int, "a whole number"),
        (float, "a number"),
        (str, "a text"),
        ((list, tuple), "a list"),
        (Mapping, "an object"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "")
