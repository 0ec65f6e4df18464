"""Finds the text of a step, and its count, in what gymnasium environments and vectors of them
return.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.envs.gym_task import captions
from motif_jax.envs.gymnasium_env import RegisteredEnv

# A field of the observation, 'info:KEY', 'obs:KEY', 'module:function', or a function as in
# `captions.of_function`.
TextSource = str | Callable[..., Any]
# Steps without the key of 'info:KEY' until a warning: some environments have it in rare events
# alone.
_STEPS_WITHOUT_KEY = 1000


class TextReader:
    """Reads text and count of single steps; UserError where the observations have no such field, or
    the function is none.
    """

    def __init__(self, text: TextSource, count: str | None, space: gymnasium.Space | None) -> None:
        self._count = count
        # The source 'info:KEY' until a step has the key.
        self._awaited = text if isinstance(text, str) and text.startswith(captions.INFO) else ""
        self._steps_without = 0
        fields = getattr(space, "spaces", space)
        if count is not None:
            _field(fields, count)
        if isinstance(text, str) and not _is_field(fields, text) and ":" in text:
            if _names_function(text):
                entry_points.trust([text])  # the user's own call names it
            if text.startswith(captions.OBSERVATION):
                require_path(space, text)
            self._caption = captions.make(text)
        elif isinstance(text, str):
            _field(fields, text)
            self._caption = lambda step: _field(step.observation, text)
        else:
            self._caption = captions.of_function(text, "text=")

    def text(self, step: captions.CaptionedStep) -> Any:
        """The text of a step as its source gives it, None for none."""
        text = self._caption(step)
        if self._awaited:
            self._note_key(text, step.info)
        return text

    def _note_key(self, text: Any, info: Mapping[str, Any]) -> None:
        """Warns, once, where no step so far had the awaited key of `info`."""
        self._steps_without += 1
        if text is not None:
            self._awaited = ""
        elif self._steps_without == _STEPS_WITHOUT_KEY:
            keys = ", ".join(sorted(info)) or "none"
            warnings.warn(
                f"text={self._awaited}: none of the first {_STEPS_WITHOUT_KEY} steps had this key, so all texts are empty (keys of "
                f"the last step: {keys})",
                stacklevel=2,
            )

    def count(self, observation: Any) -> int | None:
        """Occurrences of the text in the episode, if the observation has their number."""
        return None if self._count is None else int(_field(observation, self._count))


class BatchReader:
    """Reads the texts of a vector's columns; a function of one argument with a name of its own
    takes the batch of observations.
    """

    def __init__(
        self, text: TextSource, count: str | None, env: gymnasium.vector.VectorEnv
    ) -> None:
        self._space = env.single_observation_space
        self._environments: Sequence[Any] = getattr(env.unwrapped, "envs", ())
        self._of_batch: Any = text if captions.takes_observation_alone(text) else None
        # Of a function of batches only the count is read here.
        source = (lambda observation: None) if self._of_batch is not None else text
        function = source
        fields = getattr(self._space, "spaces", self._space)
        if isinstance(source, str) and not _is_field(fields, source) and _names_function(source):
            entry_points.trust([source])
            function = entry_points.load(captions.KEY, source)
        if captions.names(function, "environment") and not self._environments:
            raise UserError(
                "text=: the function takes `environment`, and the environments of this vector run in other processes: take "
                "a SyncVectorEnv, or a function without it"
            )
        # One for each column: an object that is made of a class remembers the episode of one
        # environment.
        self._readers = [TextReader(source, count, self._space) for _ in range(env.num_envs)]

    def texts(self, steps: Mapping[int, captions.CaptionedStep]) -> dict[int, Any]:
        """The texts of columns; the `environment` of their steps is filled in."""
        if self._of_batch is not None:
            observations = [step.observation for step in steps.values()]
            if not observations:
                return {}
            empty = create_empty_array(self._space, len(observations))
            # The function of a batch gets the observations as the vector itself would stack them.
            texts = self._of_batch(concatenate(self._space, observations, empty))
            return dict(zip(steps, texts, strict=True))
        texts_by_column = {}
        for column, step in steps.items():
            environment = self._environments[column] if self._environments else None
            texts_by_column[column] = self._readers[column].text(
                step._replace(environment=environment)
            )
        return texts_by_column

    def count(self, observation: Any) -> int | None:
        return self._readers[0].count(observation)


def info_of(infos: Mapping[str, Any], column: int) -> dict[str, Any]:
    """One environment's `info` from a vector's infos.

    A mask _KEY says which environments have KEY. Vectors of other libraries have none: there an
    array of a value for each is of all of them.
    """
    info: dict[str, Any] = {}
    for name, values in infos.items():
        mask = infos.get(f"_{name}")
        if mask is None and not (
            isinstance(values, np.ndarray) and values.ndim and column < len(values)
        ):
            continue
        if mask is not None and not mask[column]:
            continue
        # Nested infos have masks of their own.
        info[name] = info_of(values, column) if isinstance(values, Mapping) else values[column]
    return info


def pays_last_text(env: Any) -> bool:
    """`EnvironmentSpec.last_text` of a gymnasium environment or a vector: False for NetHack, NLE's
    and this package's.
    """
    unwrapped = env.unwrapped
    # Of a vector the first environment, which is like the others.
    unwrapped = next(iter(getattr(unwrapped, "envs", ())), unwrapped).unwrapped
    if isinstance(unwrapped, RegisteredEnv):
        return unwrapped.environment_spec.last_text
    if isinstance(unwrapped, AsyncVectorEnv):
        # In other processes, of which a text comes back whatever they hold:
        # "<TimeLimit<...<motif_jax/NetHackScore-v1>>>".
        return re.search(r"[</]NetHack", unwrapped.call("__str__")[0]) is None
    identity = getattr(getattr(env, "spec", None), "id", "")
    name = identity.rpartition("/")[2]
    return not (type(unwrapped).__module__.startswith("nle.") or name.startswith("NetHack"))


def _names_function(source: str) -> bool:
    """Whether a source is 'module:function', not a key."""
    is_key = source.startswith((captions.INFO, captions.OBSERVATION))
    return entry_points.is_entry_point(source) and not is_key


def _is_field(fields: Any, name: str) -> bool:
    return isinstance(fields, Mapping) and name in fields


def _field(observation: Any, name: str) -> Any:
    return observation[name]


def require_path(space: gymnasium.Space | None, source: str) -> None:
    """Raises UserError where the observations of `space` have nothing at the end of 'obs:KEY', see
    `captions.at_path`.
    """
    path = source.removeprefix(captions.OBSERVATION)
    parts = list(captions.parts_of_space(space))
    is_whole = path == captions.SINGLE and not parts
    if not is_whole and captions.at_path(space, path, captions.parts_of_space) is None:
        names = [str(name) for name, _ in parts]
        shown = ", ".join(names) if names else str(space)
        raise UserError(f"text={source}: the observations have no {path!r} but {shown}")
