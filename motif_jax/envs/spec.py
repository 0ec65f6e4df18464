"""The contract between environments and their players.

No code outside an environment's package names its fields: slots, batcher, inference and learner
follow its `EnvironmentSpec`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

# How a step leaves an episode: it goes on, has ended by the game's rules, or was cut off by a step
# limit.
RUNNING = 0
TERMINATED = 1
TRUNCATED = 2
# Ends the name of the field with what float32 has rounded away of the field before it: a clock's
# seconds since 1970 are 128 apart in float32.
REST = ".rest"
# Options that change observations but not the game.
OBSERVED = (
    "fields",
    "tokenizer",
    "prompt_tokens",
    "special_tokens",
    "joint_actions",
    "prompt_turn",
)
# The number of an action, or the numbers of one of `EnvironmentSpec.action_size` real numbers.
Action: TypeAlias = int | list[float]
# Names in an episode's row that are its identity or its player's, and so no environment's.
ROW_NAMES = frozenset({
    "seed", "index", "env", "episode", "step", "end", "end_reason", "truncated", "session", "session_seconds", "actions",
    "messages", "intrinsic_return", "intrinsic_return_uncounted", "player",
})  # fmt: skip
# Numbers of an action that its label shows: a film has a line for all that is said of a step.
_LABELLED_NUMBERS = 4
# The logit of an action that `EnvironmentSpec.mask_field` excludes: far below all others, but
# finite.
MASKED = -1e9
_WHOLE = (int, np.integer)


class EngineError(RuntimeError):
    """The engine of an environment failed; the environment has to be made again."""


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """Shape (of one step, without time and batch axes) and numpy dtype name of one observation
    field.
    """

    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class EnvironmentSpec:
    """Observations, actions and options of an environment, known before it is started.

    Attributes:
        observation: field name -> shape and dtype of one step.
        num_actions: actions are integers 0 .. num_actions - 1; 0 where they are real numbers.
        text_field: the bytes that a text reward reads.
        count_field: how often this text was seen in this episode, with this step.
        last_text: whether the text of an episode's final observation is collected and paid, with
            the step that led there; the published systems leave it out, and so does NetHack.
        observed_text: whether the text is part of what an agent observes; if not, a network reads
            it only where it is asked to.
        mask_field: uint8 [num_actions], 0 for actions that this state lacks; policies obey it.
        expert_field: optional field (unsigned integer) with a scripted player's action, the dtype's
            maximum for none.
        image_fields: pictures uint8 [height, width, channels] that a network reads with
            convolutions.
        episode_fields: numbers of `Environment.episode_info()` besides `return` and `length`.
        family: an agent can play other environments of its family that have the same fields.
        action_names: display names; 'action N' by default.
        action_keys: the byte that each action sends to a terminal game; 0 by default.
        optional_fields: fields that the option `fields` can add to the observation.
        quirks: switches of `config.compat` that the option `compat` takes, in logging order.
        section: the section of `config.environment` with this environment's options.
        renderer: 'module:Class' of its `Renderer`.
        group: 'module:Class' of an `EnvironmentGroup` made with (name, count, **options); None:
            `SingleEnvironments`, as of every class from outside the package.
        keeps_place: whether the environment takes the option `place`, its number in the run, and
            depends on it.
        modules: further modules to import before actors are forked, which start no threads; without
            effect for environments from outside the package.
        remark: a note for users on how it runs on this machine.
        action_size: actions are so many real numbers from -1 to 1, which the environment spreads
            over its own bounds; 0 where they are integers. Real numbers have no mask, no expert, no
            names and no keys.
    """

    observation: Mapping[str, ArraySpec]
    num_actions: int
    text_field: str | None = None
    count_field: str | None = None
    last_text: bool = True
    observed_text: bool = True
    mask_field: str | None = None
    expert_field: str | None = None
    image_fields: tuple[str, ...] = ()
    episode_fields: tuple[str, ...] = ()
    family: str = ""
    action_names: tuple[str, ...] = ()
    action_keys: tuple[int, ...] = ()
    optional_fields: Mapping[str, ArraySpec] = dataclasses.field(default_factory=dict)
    quirks: tuple[str, ...] = ()
    section: str | None = None
    renderer: str | None = None
    group: str | None = None
    keeps_place: bool = False
    modules: tuple[str, ...] = ()
    remark: str = ""
    action_size: int = 0

    def is_rest(self, name: str) -> bool:
        """Whether the field has what float32 has rounded away of another one (`REST`)."""
        return name.endswith(REST) and name.removesuffix(REST) in self.observation

    def __post_init__(self) -> None:
        # Fields with a meaning are fields of the observation.
        for name in (self.text_field, self.count_field, self.mask_field):
            if name is not None and name not in self.observation:
                raise ValueError(
                    f"{name!r} is not among the observation fields {sorted(self.observation)}"
                )
        # The expert's field is one of those that are observed on request.
        expert = self.expert_field
        if expert is not None and expert not in self.optional_fields:
            raise ValueError(
                f"{expert!r} is not among the optional fields {sorted(self.optional_fields)}"
            )

        # Actions are numbered or real numbers; what belongs to numbers needs the first.
        if min(self.num_actions, self.action_size) != 0 or self.num_actions == self.action_size:
            raise ValueError("one of num_actions and action_size must be above 0, and the other 0")
        numbered = (self.mask_field, self.expert_field, self.action_names, self.action_keys)
        if self.action_size and any(numbered):
            raise ValueError(
                "actions of real numbers have no mask, no expert, no names and no keys"
            )
        count = self.num_actions
        mask = self.mask_field
        if mask is not None and self.observation[mask] != ArraySpec((count,), "uint8"):
            raise ValueError(
                f"the mask {mask!r} must be uint8 [{count}], one entry for each action"
            )

        defaults: dict[str, tuple] = {
            "action_names": tuple(f"action {number}" for number in range(count)),
            "action_keys": (0,) * count,
        }
        for name, default in defaults.items():
            if not getattr(self, name):
                # The dataclass is frozen.
                object.__setattr__(self, name, default)
            if len(getattr(self, name)) != count:
                raise ValueError(f"{name} must be {count}, one for each action")

    @property
    def action(self) -> ArraySpec:
        """Shape and dtype of an action."""
        if self.action_size:
            return ArraySpec((self.action_size,), "float32")
        return ArraySpec((), "int32")

    def action_array(self, actions: Sequence[Action]) -> np.ndarray:
        """Actions as an array [T, ...] of the dtype and shape of `action`."""
        return np.array(actions, self.action.dtype).reshape(len(actions), *self.action.shape)

    def action_label(self, action: Any) -> str:
        """The name of an action, or its numbers."""
        if self.action_size == 0:
            return self.action_names[action]
        # Adding 0 turns -0.0 into 0.0.
        numbers = [f"{round(number, 2) + 0.0:.2f}" for number in action[:_LABELLED_NUMBERS]]
        return ", ".join(numbers) + (", …" if len(action) > _LABELLED_NUMBERS else "")

    def fits(self, trained: EnvironmentSpec) -> bool:
        """Whether an agent trained with the spec `trained` can play here: all its fields, and the
        same actions.
        """
        has_actions = (self.num_actions, self.action) == (trained.num_actions, trained.action)
        has_actions = has_actions and self.mask_field == trained.mask_field
        # More fields than the agent was trained with do no harm: it does not read them.
        has_fields = trained.observation.items() <= self.observation.items()
        return has_actions and has_fields

    def check_action(self, action: Any) -> None:
        """Raises ValueError for an action out of range, or a numbered one that is not whole."""
        if self.action_size:
            is_row = isinstance(action, Sequence) and all(
                isinstance(number, float | int) for number in action
            )
            # Not a number is not at most 1 either.
            if not (
                is_row
                and len(action) == self.action_size
                and all(abs(number) <= 1 for number in action)
            ):
                raise ValueError(f"action {action} is not {self.action_size} numbers from -1 to 1")
            return
        is_whole = isinstance(action, _WHOLE) and not isinstance(action, bool)
        if not (is_whole and 0 <= action < self.num_actions):
            raise ValueError(f"action {action} is not one of 0 .. {self.num_actions - 1}")


class Frame(NamedTuple):
    """One observation as shown to people.

    Attributes:
        chars: uint8 [rows, columns], ASCII.
        colors: uint8 or int8 [rows, columns]; bits 0 to 3 are the terminal colour, bit 4 reverses
            it.
        cursor: row and column of the player.
        numbers, notes: name -> value or text to display; the same names for all observations.
        spare_rows: rows that a low terminal may leave out.
        picture: uint8 [height, width, 3], shown in place of the characters except on a terminal.
    """

    chars: np.ndarray
    colors: np.ndarray
    cursor: tuple[int, int] | None = None
    numbers: Mapping[str, float] = {}
    spare_rows: tuple[int, ...] = ()
    notes: Mapping[str, str] = {}
    picture: np.ndarray | None = None


class Renderer(Protocol):
    """Draws the observation's `fields` for people."""

    fields: tuple[str, ...]

    def __init__(self, spec: EnvironmentSpec) -> None:
        """Takes the environment's spec."""

    def frame(self, observation: Mapping[str, np.ndarray]) -> Frame:
        """The frame may share memory with `observation`, which is overwritten later."""


class Environment(Protocol):
    """One game played step by step. After an end other than `RUNNING` the caller resets."""

    spec: EnvironmentSpec

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        """Starts the episode of `seed`, which determines it fully, and writes its first
        observation. Raises EngineError.
        """

    def step(self, action: Any, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        """Plays `action`, an int or `spec.action_size` floats; returns the reward and one of
        `RUNNING`, `TERMINATED`, `TRUNCATED`.

        Writes every field of `out` completely; the fields may be views of a row of larger arrays.
        Raises EngineError: the engine is broken; ValueError: the action is out of range.
        """

    def episode_info(self) -> dict[str, float]:
        """Return, length and `spec.episode_fields` of the current episode, or of the one that has
        just ended; none is called as one of `ROW_NAMES`.
        """

    def close(self) -> None:
        """Frees the engine; the object cannot be used afterwards."""


class EnvironmentGroup(Protocol):
    """Environments that are stepped together; each is a column."""

    spec: EnvironmentSpec
    count: int

    def start(self, column: int, seed: int) -> None:
        """Starts the episode of `seed` in `column`."""

    def step(self, actions: Sequence[Any], columns: Sequence[int]) -> tuple[list[float], list[int]]:
        """Plays `actions[column]` in each of `columns` (ascending); returns rewards and ends of
        all, 0 for resting ones.

        A column that has ended must be started again before its next step.
        """

    def observe(self, out: Mapping[str, np.ndarray]) -> None:
        """Writes the newest observations into the fields of `out`, each [count, *shape]."""

    def episode_info(self, column: int) -> dict[str, float]:
        """As `Environment.episode_info`, for the episode in `column`."""

    def close(self) -> None:
        """Frees the engines."""


class Row(dict[str, np.ndarray]):
    """The arrays of one row, field -> view, which only one environment writes; `handles` caches
    what it makes of them.
    """

    __slots__ = ("handles",)

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__(arrays)
        self.handles: Any = None

    def __setitem__(self, name: str, array: np.ndarray) -> None:
        raise TypeError("the arrays of a row stay the same; write into them")


def empty_observation(
    spec: EnvironmentSpec, leading: tuple[int, ...] = ()
) -> dict[str, np.ndarray]:
    """Zeroed arrays of the fields of `spec`, each [*leading, *shape]; a `Row` without leading
    axes.
    """
    fields = spec.observation.items()
    arrays = {name: np.zeros((*leading, *field.shape), field.dtype) for name, field in fields}
    return arrays if leading else Row(arrays)


def row(arrays: Mapping[str, np.ndarray], *index: int) -> Row:
    """Writable views of one row of `arrays`, e.g. (time, env); scalar fields become arrays []."""
    # With the ellipsis numpy gives a view even where nothing but a scalar is left.
    view: tuple = (*index, ...)
    return Row({name: array[view] for name, array in arrays.items()})
