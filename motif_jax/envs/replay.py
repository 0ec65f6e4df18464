"""Records an episode as seed and actions, and replays it byte for byte.

recorder = Recorder("NetHackScore-v1", max_episode_steps=500)
for moment in recorder.record(seed=7, choose=policy): ...
recorder.recording.save("episode.json")

for moment in replay(Recording.load("episode.json")): draw(moment.observation["tty_chars"], ...)
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from motif_jax.envs import registry
from motif_jax.envs.episode import Choose, Transition, given_actions, play
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.support import entry_points
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_json, read_json

FORMAT = "motif_jax.recording.1"
_SCREEN = ("tty_chars", "tty_colors")
_REMEDY = "leave it out, or have the episode recorded again"


@dataclasses.dataclass(frozen=True)
class Recording:
    """The seed, actions and digest of an episode.

    Attributes:
        options: the environment's options without `fields`, which do not affect the game.
        actions: integers [steps].
        digest: hash over every step's reward, end and default observation fields.
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
        content = dataclasses.asdict(self) | {"actions": self.actions.tolist(), "format": FORMAT}
        content["options"] = dict(self.options)
        content["info"] = dict(self.info)
        atomic_write_json(path, content)

    @classmethod
    def load(cls, path: str | os.PathLike[str], trust: Iterable[str] = ()) -> Recording:
        """Reads a recording.

        Raises:
            UserError: `path` is not a recording, or its task is a 'module:Class' that is not in `trust`.
        """
        entry_points.trust(trust)
        content = read_json(path, _REMEDY)
        entry_points.asked(path, content)
        known = content.pop("format", None) == FORMAT
        if not known or set(content) != {field.name for field in dataclasses.fields(cls)}:
            raise UserError(f"{path} is not a recording of an episode (format {FORMAT}); {_REMEDY}")
        try:
            limit = content["options"].get("max_episode_steps")
            if limit is not None and (type(limit) is not int or limit < 1):
                raise ValueError("max_episode_steps is not a whole number")
            spec = _spec_of(path, content)
            for action in content["actions"]:
                spec.check_action(action)
            if type(content["seed"]) is not int or content["seed"] < 0:
                raise ValueError("seed is not a whole number")
            dict(content["info"])
            return cls(**content | {"actions": np.asarray(content["actions"], np.int64)})
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged ({error}): {_REMEDY}") from None


class Digest:
    """A running hash over an episode's rewards, ends and default observation fields."""

    def __init__(self, task: str, options: Mapping[str, Any]) -> None:
        self._names = tuple(sorted(registry.spec(task, **_playable(options)).observation))
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, observation: Mapping[str, np.ndarray], reward: float, end: int) -> None:
        for name in self._names:
            self._hash.update(observation[name].tobytes())
        self._hash.update(f"{reward!r} {end}".encode())

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def not_the_recorded(recording: Recording) -> UserError:
    """The error for a replay that does not match `recording`."""
    return UserError(
        f"the replay of {recording.task} with seed {recording.seed} is not the episode that was recorded: the"
        f" recording was changed, or the game (recorded with nle {recording.engine}, played with {version('nle')})"
    )


class Recorder:
    """Plays episodes of one task; `recording` is the newest.

    `options` are the environment's, with `fields`. Raises UserError: `compat.seed_noop` is on, which cannot be replayed.
    """

    def __init__(self, task: str, **options: Any) -> None:
        self._options = _playable(options)
        self._task = task
        self.environment = registry.make(task, **options)
        self.recording: Recording | None = None

    def record(self, seed: int, choose: Choose) -> Iterator[Transition]:
        """Plays the episode of `seed`; sets `recording` when it ends or the caller closes the iterator."""
        digest = Digest(self._task, self._options)
        actions: list[int] = []
        try:
            for moment in play(self.environment, seed, choose):
                if moment.action >= 0:
                    actions.append(moment.action)
                digest.add(moment.observation, moment.reward, moment.end)
                yield moment
        finally:
            self.recording = Recording(
                self._task,
                self._options,
                seed,
                np.asarray(actions, np.int64),
                digest.hexdigest(),
                version("nle"),
                self.environment.episode_info(),
            )

    def close(self) -> None:
        self.environment.close()


def replay(
    recording: Recording, fields: tuple[str, ...] = _SCREEN, verify: bool = True
) -> Iterator[Transition]:
    """Replays a recording, with the screen fields added to the observation.

    Raises:
        UserError: at the end, if `verify` and the digest differs (another engine version, or a changed file).
    """
    options = _playable(dict(recording.options))
    digest = Digest(recording.task, options)
    environment = registry.make(recording.task, **options | {"fields": fields})
    try:
        for moment in play(environment, recording.seed, given_actions(recording.actions)):
            digest.add(moment.observation, moment.reward, moment.end)
            yield moment
    finally:
        environment.close()
    if verify and digest.hexdigest() != recording.digest:
        raise not_the_recorded(recording)


def _spec_of(path: str | os.PathLike[str], content: Mapping[str, Any]) -> EnvironmentSpec:
    try:
        return registry.spec(content["task"], **_playable(content["options"]))
    except UserError as error:
        raise UserError(f"{path} cannot be played: {error}") from None


def _playable(options: Mapping[str, Any]) -> dict[str, Any]:
    compat = {name: bool(value) for name, value in dict(options.get("compat") or {}).items() if value}
    if compat.get("seed_noop"):
        raise UserError("compat.seed_noop=True: episodes without seeds cannot be recorded; turn it off")
    rest = {name: value for name, value in options.items() if name not in ("fields", "compat")}
    return rest | ({"compat": compat} if compat else {})
