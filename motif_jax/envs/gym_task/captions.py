"""Functions that put a step of an environment into words: for `config.environment.text` and for the
wrappers.

Such a function takes what it needs of `ARGUMENTS` by name:

    def tell(info, reward, terminated):
        return "You win!" if terminated and reward > 0 else info["event"]
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import entry_points, text_bytes
from motif_jax.core.errors import UserError

KEY = "environment.text"
# Prefixes of `config.environment.text`.
INFO = "info:"
OBSERVATION = "obs:"
# The name of an observation that has no parts.
SINGLE = "observation"


class CaptionedStep(NamedTuple):
    """An observation and the step that led to it: what a caption is made from.

    Attributes:
      info: of `reset` or `step`.
      environment: the gymnasium environment.
      action: None after a reset; reward is 0 there, and nothing has ended.
    """

    observation: Any
    info: Mapping[str, Any]
    environment: Any
    action: Any = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


ARGUMENTS = CaptionedStep._fields
# Functions with other names for their arguments take these, in this order.
_BY_ORDER = ARGUMENTS[:4]
Caption = Callable[[CaptionedStep], Any]


def make(text: str) -> Caption:
    """Parses 'info:KEY', 'obs:KEY' (dots for nested keys) or 'module:function'; an object is made
    of a class. Raises UserError.
    """
    if text.startswith(INFO):
        info_path = text.removeprefix(INFO)
        return lambda step: at_path(step.info, info_path, _parts_of_value)
    if text.startswith(OBSERVATION):
        field = text.removeprefix(OBSERVATION)
        return lambda step: _observed(step.observation, field)
    if not entry_points.is_entry_point(text):
        raise UserError(f"config.{KEY}={text}: must be module:function, info:KEY or obs:KEY")
    function = entry_points.load(KEY, text)
    if isinstance(function, type):
        entry_points.require_signature(KEY, text, function)
    return of_function(function, f"config.{KEY}={text}")


def of_function(function: Any, name: str) -> Caption:
    """The caption function of a user's function, or of a class, which is made once so that it can
    remember.

    `name` begins the error. A function whose arguments have other names is called with observation,
    info, environment and action, in this order, or with the observation if it takes one argument.

    Raises UserError: it is not a function of such arguments.
    """
    function = function() if isinstance(function, type) else function
    if not callable(function):
        raise _refusal(name)
    # Their signatures say nothing of what they take: the observation, as `itemgetter("text")` does.
    if isinstance(function, operator.itemgetter | operator.attrgetter | operator.methodcaller):
        return lambda step: function(step.observation)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # of C, without a readable signature
        return lambda step: function(step.observation)
    if _goes_by_name(parameters):
        return lambda step: function(**_named(parameters, step))
    count = _count_by_order(parameters)
    if count is None:
        raise _refusal(name)
    further = _further(parameters, count)
    return lambda step: function(*step[:count], **_named(further, step))


def takes_observation_alone(function: Any) -> bool:
    """Whether a function has one argument, whose name is not in `ARGUMENTS`, and none besides that
    a step fills in.
    """
    parameters = _parameters(function)
    if parameters is None or _goes_by_name(parameters):
        return False
    return _count_by_order(parameters) == 1 and not _further(parameters, 1)


def names(function: Any, argument: str) -> bool:
    """Whether a function needs `argument`, by its name or by its order."""
    parameters = _parameters(function)
    if parameters is None:
        return False
    if _goes_by_name(parameters):
        return any(parameter.name == argument for parameter in _required(parameters))
    count = _count_by_order(parameters) or 0
    further = [parameter.name for parameter in _further(parameters, count)]
    return argument in (*_BY_ORDER[:count], *further)


def _parameters(function: Any) -> list[inspect.Parameter] | None:
    """The parameters of a function, or of the objects of a class; None: unknown."""
    is_class = isinstance(function, type)
    try:
        parameters = list(
            inspect.signature(function.__call__ if is_class else function).parameters.values()
        )
    except (TypeError, ValueError):
        return None
    return parameters[1:] if is_class else parameters  # without `self`


def _further(parameters: Sequence[inspect.Parameter], count: int) -> list[inspect.Parameter]:
    """The arguments after the first `count` ones, if their names are in `ARGUMENTS`."""
    ordered = _positional(parameters)[:count]
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        parameter
        for parameter in parameters
        if parameter.kind in by_name and parameter.name in ARGUMENTS and parameter not in ordered
    ]


def _refusal(name: str) -> UserError:
    return UserError(
        f"{name}: must be a function that takes some of {', '.join(ARGUMENTS)}, by these names; or of observation, info, "
        "environment and action in this order"
    )


def _required(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in several
    ]


def _positional(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter for parameter in parameters if parameter.kind in kinds]


def _goes_by_name(parameters: Sequence[inspect.Parameter]) -> bool:
    """Whether all that the function needs can be given by known names."""
    kinds = {parameter.kind for parameter in parameters}
    required = _required(parameters)
    positional = _positional(parameters)
    if any(
        parameter.name not in ARGUMENTS or parameter.kind is parameter.POSITIONAL_ONLY
        for parameter in required
    ):
        return False
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return False
    if required or inspect.Parameter.VAR_KEYWORD in kinds:
        return True
    # With defaults alone, a first argument of another name is an observation.
    return all(parameter.name in ARGUMENTS for parameter in positional)


def _named(parameters: Sequence[inspect.Parameter], step: CaptionedStep) -> dict[str, Any]:
    """The arguments of `step` that `parameters` name, or all where they take any."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return step._asdict()
    return {
        parameter.name: getattr(step, parameter.name)
        for parameter in parameters
        if parameter.name in ARGUMENTS
    }


def _count_by_order(parameters: Sequence[inspect.Parameter]) -> int | None:
    """How many arguments a function takes in the order of `_BY_ORDER`; None: it cannot be called
    so.
    """
    positional = _positional(parameters)
    required = _required(parameters)
    if any(
        parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in ARGUMENTS
        for parameter in required
    ):
        return None
    takes_several = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    needed = [parameter for parameter in required if parameter in positional]
    if len(needed) > len(_BY_ORDER):
        return None
    # A function with one required argument, as in `def tell(obs, memory={}, a=1, b=2)`, takes the
    # observation alone.
    takes_four = takes_several or (len(positional) >= len(_BY_ORDER) and len(needed) != 1)
    if takes_four:
        return len(_BY_ORDER)
    return 1 if positional and len(needed) <= 1 else None


def at_path(values: Any, path: str, parts_of: Callable[[Any], Iterable[tuple[Any, Any]]]) -> Any:
    """What lies at `path`, keys and indices joined with dots, as `spaces.Leaf.name` is; None where
    it leads nowhere.

    A key may itself hold dots. `parts_of` gives keys or indices with what lies there, nothing where
    there are no parts.
    """
    for key, part in parts_of(values):
        if str(key) == path:
            return part
        if path.startswith(f"{key}."):
            inner = at_path(part, path.removeprefix(f"{key}."), parts_of)
            if inner is not None:
                return inner
    return None


def _observed(observation: Any, field: str) -> Any:
    """The part of an observation that `field` names (`spaces.Leaf.name`); None where there is
    none.
    """
    has_parts = isinstance(observation, Mapping | tuple | list)
    if field == SINGLE and not has_parts:
        return observation
    return at_path(observation, field, _parts_of_value)


def _parts_of_value(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, tuple | list) else ()


def parts_of_space(space: Any) -> Iterable[tuple[Any, Any]]:
    """The spaces of a Dict or a Tuple with their keys or indices."""
    return _parts_of_value(getattr(space, "spaces", None))


def text_bytes_of(text: Any) -> bytes:
    """A text in UTF-8, with blanks for NUL characters; bytes and arrays uint8 as they are, up to
    their first zero; b"" for None.

    Raises TypeError: `text` is not a text.
    """
    if text is None:
        return b""
    if isinstance(text, str):
        return text_bytes.encode(text.replace("\0", " "))
    if isinstance(text, np.ndarray) and text.dtype == np.uint8:
        text = text.tobytes()
    if isinstance(text, bytes | bytearray | memoryview):
        return bytes(text).split(b"\0", 1)[0]
    raise TypeError(f"expected a text, got {type(text).__name__}")
