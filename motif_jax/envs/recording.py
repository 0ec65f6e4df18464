"""An episode as seed and actions, with a digest that tells whether it was played again byte for
byte.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, finite, read_json
from motif_jax.envs import registry
from motif_jax.envs.episode import EpisodePlayer, PlayedEpisode, fixed_actions
from motif_jax.envs.spec import Environment

FORMAT = "motif_jax.recording.1"
FOLDER = "recordings"  # in a training's folder
# The recordings' names in it, without '.json': step of the training, environment, episode.
STEM = re.compile(r"step-(\d+)-env-(\d+)-episode-(\d+)")
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

    @classmethod
    def of(cls, task: str, options: Mapping[str, Any], episode: PlayedEpisode) -> Recording:
        """The recording of an episode of `task` with `options` that was played with a digest of
        `digest_fields`.
        """
        assert episode.digest is not None
        return cls(
            task=task,
            options=_playable(options),
            seed=episode.seed,
            actions=episode.actions,
            digest=episode.digest,
            engine=version("nle"),
            info=episode.info,
        )

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
        if content.pop("format", None) != FORMAT:
            raise UserError(f"{path} is not a recording of an episode (format {FORMAT}); {_REMEDY}")
        # Imports the environment's class, where the user trusts it.
        spec = registry.spec(content["task"], **_playable(content["options"]))
        return cls(**content | {"actions": spec.action_array(content["actions"])})


def digest_fields(task: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """The observation fields that the digest of an episode of `task` is of, without optional ones:
    whoever plays an episode again may ask for others, and the order of fields must not count.

    Raises UserError: `compat.seed_noop` is on, which cannot be played again.
    """
    return tuple(sorted(registry.spec(task, **_playable(options)).observation))


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
    environment: Environment, task: str, options: Mapping[str, Any], seed: int, actions: np.ndarray
) -> Recording:
    """Plays `actions` [steps, ...] in the episode `seed` of `environment`, which is `task` with
    `options`; an episode that ends early leaves the rest of them out.

    Raises UserError as `digest_fields`.
    """
    fields = digest_fields(task, options)
    player = EpisodePlayer(environment, keep_texts=False, digest_fields=fields)
    episode = player.play(seed, fixed_actions(np.asarray(actions)))
    return Recording.of(task, options, episode)


def record_actions(
    task: str, options: Mapping[str, Any], seed: int, actions: np.ndarray
) -> Recording:
    """As `record`, in an environment that is made for it."""
    with contextlib.closing(registry.make(task, **options)) as environment:
        return record(environment, task, options, seed, actions)


def differences(info: Mapping[str, Any], written: Mapping[str, Any]) -> list[str]:
    """Describes the numbers of a replay that differ from the written ones: 'dlvl 3 written, 2
    now'.
    """
    lines = []
    for name, value in info.items():
        before = written.get(name)
        if before is not None and finite(before) != finite(value):
            lines.append(f"{name} {before:g} written, {value:g} now")
    return lines


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
