"""An episode as seed and actions, with a digest that tells whether it was played again byte for
byte.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json
from motif_jax.envs import registry
from motif_jax.envs.episode import fixed_actions, play
from motif_jax.envs.spec import Environment

FORMAT = "motif_jax.recording.1"
_REMEDY = "leave it out, or have the episode recorded again"


@dataclasses.dataclass(frozen=True)
class Recording:
    """The seed, actions and digest of an episode.

    Attributes:
        options: the environment's options without `fields`, which do not affect the game.
        actions: [steps, ...], as `EnvironmentSpec.action` says.
        engine: version of nle.
        info: `episode_info` at the last step.
    """

    task: str
    options: Mapping[str, Any]
    seed: int
    actions: np.ndarray
    digest: str
    engine: str
    info: Mapping[str, float]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the recording as JSON, atomically."""
        plain = {
            "actions": self.actions.tolist(),
            "options": dict(self.options),
            "info": dict(self.info),
        }
        atomic_write_json(path, vars(self) | plain | {"format": FORMAT})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Reads a recording. Raises UserError: `path` is none, or its task is a 'module:Class' that
        is not trusted.
        """
        content = read_json(path, _REMEDY)
        # A refusal of a class then says that this file names it.
        entry_points.note_source(path, content)
        has_format = content.pop("format", None) == FORMAT
        names = {field.name for field in dataclasses.fields(cls)}
        if not has_format or set(content) != names:
            raise UserError(f"{path} is not a recording of an episode (format {FORMAT}); {_REMEDY}")
        try:
            limit = content["options"].get("max_episode_steps")
            if limit is not None and (type(limit) is not int or limit < 1):
                raise ValueError("max_episode_steps is not a whole number")
            try:
                # Imports the environment's class, where the user trusts it.
                spec = registry.spec(content["task"], **_playable(content["options"]))
            except UserError as error:
                raise UserError(f"{path} cannot be played: {error}") from None
            for action in content["actions"]:
                spec.check_action(action)
            if type(content["seed"]) is not int or content["seed"] < 0:
                raise ValueError("seed is not a whole number")
            # Raises where it is no mapping.
            dict(content["info"])
            return cls(**content | {"actions": spec.action_array(content["actions"])})
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged ({error}): {_REMEDY}") from None


class Digest:
    """A running hash over an episode's rewards, ends and default observation fields."""

    def __init__(self, task: str, options: Mapping[str, Any]) -> None:
        # Without optional fields: whoever plays an episode again may ask for others, and the order
        # of fields must not count.
        self._names = tuple(sorted(registry.spec(task, **_playable(options)).observation))
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, observation: Mapping[str, np.ndarray], reward: float, end: int) -> None:
        """Hashes one step; the first observation of an episode comes with reward 0 and end
        `RUNNING`.
        """
        for name in self._names:
            self._hash.update(observation[name].tobytes())
        # `repr` writes a float with all its bits.
        self._hash.update(f"{reward!r} {end}".encode())

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def mismatch_error(recording: Recording) -> UserError:
    """The error to raise for a replay that does not match `recording`."""
    if registry.is_gym(recording.task) or entry_points.is_entry_point(recording.task):
        cause = (
            "or the environment is not a function of its seed and actions: it draws random numbers that reset(seed=...) does not "
            "seed, or its pictures draw from the game's generator (give them another one)"
        )
    else:
        cause = f"or the game (recorded with nle {recording.engine}, played with {version('nle')})"
    return UserError(
        f"the replay of {recording.task} with seed {recording.seed} is not the episode that was recorded: the recording was "
        f"changed, {cause}"
    )


def record(
    environment: Environment,
    task: str,
    options: Mapping[str, Any],
    seed: int,
    actions: np.ndarray,
    on_step: Callable[[], None] = lambda: None,
) -> Recording:
    """Plays `actions` [steps, ...] in the episode `seed` of `environment`, which is `task` with
    `options`.

    `on_step` is called at each step, of which a slow game may need minutes in all.

    Raises UserError: `compat.seed_noop` is on, which cannot be played again.
    """
    options = _playable(options)
    digest = Digest(task, options)
    played: list[Any] = []
    for transition in play(environment, seed, fixed_actions(actions)):
        on_step()
        played.append(transition.action)
        digest.add(transition.observation, transition.reward, transition.end)
    return Recording(
        task=task,
        options=options,
        seed=seed,
        # No action led to the first observation; an episode that ends early leaves the rest of
        # `actions` out.
        actions=environment.spec.action_array(played[1:]),
        digest=digest.hexdigest(),
        engine=version("nle"),
        info={name: float(value) for name, value in environment.episode_info().items()},
    )


def _playable(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a game, without fields and with those switches of `compat` that are on."""
    compat = {name: True for name, is_on in dict(options.get("compat") or {}).items() if is_on}
    if compat.get("seed_noop"):
        raise UserError(
            "compat.seed_noop=True: episodes without seeds cannot be recorded; turn it off"
        )
    playable = {name: value for name, value in options.items() if name not in ("fields", "compat")}
    if compat:
        playable["compat"] = compat
    return playable
