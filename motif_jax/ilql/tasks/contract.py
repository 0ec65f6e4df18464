"""The contract of a text task: observations, environments, policies, and how they interact (Snell
et al. 2022).

An action is a text. All randomness comes from the generator that an episode receives, so a seed
determines the episode.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues, DialogueStream
from motif_jax.ilql.dialogues.dialogue_tokens import TextTokenizer
from motif_jax.schema import Key

# Texts -> a number for each, from a judge such as a model.
Scorer = Callable[[Sequence[str]], Sequence[float]]


class Observation(ABC):
    """The state of a dialogue; immutable."""

    @abstractmethod
    def to_sequence(self) -> Dialogue:
        """The dialogue so far with its rewards, and whether it has ended."""


class Outcome(NamedTuple):
    """The result of an action: the next observation, the reward, and whether the dialogue has
    ended.
    """

    observation: Any
    reward: float
    terminal: bool


class TextEnvironment(ABC):
    """The other side of a dialogue, one episode at a time."""

    @abstractmethod
    def reset(self, rng: np.random.Generator, start: Any = None) -> Any:
        """Begins an episode at `start` (an observation of this task), or at the beginning for
        None.
        """

    @abstractmethod
    def step(self, action: str) -> Outcome:
        """Says `action`. Raises ValueError: the episode has ended."""


class TextPolicy(ABC):
    """A policy that speaks to the environment."""

    @abstractmethod
    def act(self, observation: Any, rng: np.random.Generator) -> str:
        """Returns the next utterance."""


class FunctionPolicy(TextPolicy):
    """Says what a function of the observation and the generator returns."""

    def __init__(self, choose_action: Callable[[Any, np.random.Generator], str]) -> None:
        self._choose_action = choose_action

    def act(self, observation: Any, rng: np.random.Generator) -> str:
        return self._choose_action(observation, rng)


class Step(NamedTuple):
    """One step: the observation, the action said on it, and its reward."""

    observation: Any
    action: str
    reward: float


class TextEpisode(NamedTuple):
    """An episode: its last observation and its steps."""

    observation: Any
    steps: tuple[Step, ...]


def interact(
    environment: TextEnvironment, policy: TextPolicy, rng: np.random.Generator, start: Any = None
) -> TextEpisode:
    """Plays an episode to its end, from `start` if given."""
    observation = environment.reset(rng, start)
    steps: list[Step] = []
    # A start may be the end of a game already.
    terminal = start is not None and observation.to_sequence().terminal
    while not terminal:
        action = policy.act(observation, rng)
        outcome = environment.step(action)
        steps.append(Step(observation, action, float(outcome.reward)))
        observation = outcome.observation
        terminal = outcome.terminal
    return TextEpisode(observation, tuple(steps))


def play_stream(environment: TextEnvironment, policy: TextPolicy) -> DialogueStream:
    """The stream of a policy's episodes."""

    def draw(rng: np.random.Generator, count: int, first: int) -> Dialogues:
        episodes = (interact(environment, policy, rng) for _ in range(count))
        return Dialogues.of(episode.observation.to_sequence() for episode in episodes)

    return draw


def recorded_stream(dialogues: Sequence[Dialogue]) -> DialogueStream:
    """The stream that goes through `dialogues`."""
    return lambda rng, count, first: Dialogues.of(dialogues[first : first + count])


class TextTask(ABC):
    """A text task; made from its options, in worker processes too.

    Where its tokenizer is a tokenizer.json, or is learned, subclass `file_tokens.FileTokenTask`.

    Class attributes:
      name: the config section with its options, for errors.
      kinds: the kinds of dialogues that `stream` knows.
      keys: option -> its `Key`: default, type, range and help.
      defaults: option -> its default; a class has these or `keys`, and the other one follows.
      switches: prefix of its compat switches; the rest of a switch's name is an option.
      follow: option -> options that are valid only with its value; a change of its value drops
          them.
      paths: options that name files or folders.
      lists: values of these that name a list of the package.
      patient: whether an episode may take any time, as with a server; else it counts as hung after
          minutes.
    """

    name: ClassVar[str] = "options"
    kinds: ClassVar[Sequence[str]] = ("games",)
    keys: ClassVar[Mapping[str, Key]] = {}
    defaults: ClassVar[Mapping[str, Any]] = {}
    switches: ClassVar[str] = ""
    follow: ClassVar[Mapping[str, Sequence[str]]] = {}
    paths: ClassVar[Sequence[str]] = ()
    lists: ClassVar[Sequence[str]] = ()
    patient: bool = False

    def __init_subclass__(cls) -> None:
        if "keys" in cls.__dict__:
            cls.defaults = {name: key.default for name, key in cls.keys.items()}
        # `Key` takes its type from the default.
        elif "defaults" in cls.__dict__:  # None allows any type
            cls.keys = {
                name: Key(tuple(value) if isinstance(value, list) else value, "")
                for name, value in cls.defaults.items()
                if value is not None
            }

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises UserError: an option is unknown, or its value is not allowed."""
        unknown = sorted(set(options) - set(self.defaults))
        if unknown:
            raise UserError(
                f"config.options: {type(self).__name__} has no option {', '.join(unknown)}; "
                f"must be among {', '.join(self.defaults) or 'none'}"
            )
        for key, value in options.items():
            if key in self.keys:
                # JSON has lists where a config has tuples.
                plain = tuple(value) if isinstance(value, list) else value
                self.keys[key].require(f"{self.name}.{key}", plain)
        self.options: dict[str, Any] = {**self.defaults, **options}

    def require(self, condition: bool, key: str, allowed: str) -> None:
        """Raises a UserError that names an option unless `condition` holds."""
        checks.require(condition, f"{self.name}.{key}", self.options[key], allowed)

    def read_indexes(self, count: int) -> Sequence[int]:
        """Row numbers below `count` from the JSON list in the file of the option `indexes`; all if
        it is empty. Raises UserError: a row is not one of them; numpy would count from the end.
        """
        path = self.options["indexes"]
        if not path:
            return range(count)
        rows: list[int] = read_json(
            path, f"config.{self.name}.indexes takes a JSON list of rows", kind=list
        )
        # True and False are ints for Python.
        is_valid = all(type(row) is int and 0 <= row < count for row in rows)
        self.require(is_valid, "indexes", f"a list of whole numbers from 0 to {count - 1:,}")
        return rows

    @abstractmethod
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer of its texts."""

    @abstractmethod
    def environment(self) -> TextEnvironment:
        """Makes a new environment."""

    @abstractmethod
    def policy(self, name: str) -> TextPolicy:
        """Makes one of the task's own policies. Raises UserError: the name is unknown."""

    def outcome(self, dialogue: Dialogue) -> dict[str, float]:
        """Measures of an ended episode besides its return; `success` is 0 or 1."""
        return {}

    def check(self, kind: str, policy: str) -> None:
        """Raises the UserErrors of `stream` that cheap checks can find."""
        if kind not in self.kinds:
            raise UserError(f"config.kind={kind}: must be one of {', '.join(self.kinds)}")

    def check_episodes(self) -> None:  # noqa: B027 (optional override)
        """Raises UserError if a file that episodes need without `prepare` is missing or
        unreadable.
        """

    def files(self) -> dict[str, Path]:
        """Option -> file that determines its dialogues; 'OPTION (FILE)' for files of a folder."""
        named = {key: value for key, value in self.options.items() if isinstance(value, str)}
        return {key: Path(value) for key, value in named.items() if os.path.isfile(value)}

    def undrawn(self) -> tuple[str, ...]:
        """Options on which its games do not depend."""
        return ()

    def prepare(self, kind: str, policy: str, folder: Path) -> dict[str, Any]:
        """Makes files that `stream` needs and that are missing, in `folder`; returns options of a
        task that reads them.
        """
        return self.options

    def stream(self, kind: str, policy: str) -> DialogueStream:
        """Dialogues of one of `kinds`; 'games' are played by `policy`."""
        assert kind in self.kinds
        return play_stream(self.environment(), self.policy(policy))

    def count(self, kind: str) -> int | None:
        """The number of dialogues of the kind, which `first` of a `DialogueStream` numbers; None if
        endless.
        """
        return None

    def endless(self, kind: str) -> bool:
        """Whether dialogues of the kind are endless; needs neither files nor scores, unlike
        `count`.
        """
        return self.count(kind) is None

    def learned_tokens(self) -> int:
        """Vocabulary size of the tokenizer to learn from the task's dialogues; 0 if none is
        learned.
        """
        return 0

    def scored_by(self) -> str:
        """The kind of score that its rewards need from `use_scorer` (such as 'toxicity'); '' for
        none.
        """
        return ""

    def use_scorer(self, scorer: Scorer) -> None:
        """Sets the scorer of texts without a known score; only for tasks with `scored_by`."""
        raise TypeError(
            f"{type(self).__name__} has rewards that no scorer decides: scored_by() gives ''"
        )

    def texts_to_score(self, kind: str) -> Sequence[str]:
        """Distinct texts of the kind's data without a known score; the option `scores` names the
        file for their scores.
        """
        return ()

    def known_scores(self) -> Mapping[str, float]:
        """Text -> score, read from the option `scores`."""
        return {}

    def finish(self, kind: str, folder: Path) -> None:  # noqa: B027 (optional override)
        """Writes further files about all dialogues of the kind, which are in `folder` by then."""

    def failures(self) -> int:
        """Failed server requests of this process."""
        return 0

    def dialogues_per_draw(self, kind: str) -> int:
        """The best number of dialogues (or groups of them) to draw together."""
        return 64

    def facts(self, kind: str) -> dict[str, Any]:
        """Facts about the data of the kind, available after its stream is made."""
        return {}
