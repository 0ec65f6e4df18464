"""MiniHack's tasks as environments, with NetHack's observations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from motif_jax.envs.minihack.levels import LEVELS
from motif_jax.envs.nethack import buffers as b
from motif_jax.envs.nethack import observation
from motif_jax.envs.nethack.actions import action_names
from motif_jax.envs.nethack.environment import NetHackEnvironment
from motif_jax.envs.nethack.game import Game
from motif_jax.envs.nethack.group import NetHackGroup
from motif_jax.envs.nethack.observation import MAX_EPISODE_STEPS
from motif_jax.envs.spec import EnvironmentSpec

# A NetHack task that gives the fields, which all of them share.
_FIELDS_TASK = "NetHackScore-v1"
_QUIRKS = ("crop_row_offset", "message_count_off", "timeout_as_terminal")
_NETHACK_OPTIONS = (
    "color", "showexp", "nobones", "nolegacy", "nocmdassist", "disclose:+i +a +v +g +c +o", "runmode:teleport", "mention_walls",
    "nosparkle", "showscore", "pettype:none",
)  # fmt: skip


def make_spec(
    name: str,
    *,
    fields: Iterable[str] = (),
    max_episode_steps: int = MAX_EPISODE_STEPS,
    compat: Mapping[str, bool] | None = None,
) -> EnvironmentSpec:
    """The spec of the task `name` with these options."""
    level = LEVELS[name]
    nethack = observation.make_spec(
        _FIELDS_TASK, fields=fields, max_episode_steps=max_episode_steps, compat=compat
    )
    return dataclasses.replace(
        nethack,
        # Many of these tasks end with the message that they are about.
        last_text=True,
        num_actions=len(level.keys),
        action_names=action_names(level.keys),
        action_keys=level.keys,
        family="minihack",
        quirks=_QUIRKS,
        group="motif_jax.envs.minihack.environment:MiniHackGroup",
        modules=(*nethack.modules, "motif_jax.envs.nethack.level_engine", *level.modules),
    )


class MiniHackGroup(NetHackGroup):
    """Games of one MiniHack task, stepped together."""

    make_spec = staticmethod(make_spec)

    @staticmethod
    def new_game(task: str, engine: b.Engine, max_steps: int, compat: Mapping[str, bool]) -> Game:
        from motif_jax.envs.minihack.game import MiniHackGame
        from motif_jax.envs.nethack.level_engine import LevelEngine

        assert isinstance(engine, LevelEngine)
        quirks = {name: on for name, on in compat.items() if name in _QUIRKS}
        return MiniHackGame(task, engine, max_steps, quirks)

    @staticmethod
    def new_engine(task: str, buffers: b.Buffers) -> b.Engine:
        """An engine for `task` that writes into `buffers`; only the level has monsters."""
        # Imported here so that a spec does not load the engine.
        from motif_jax.envs.minihack.game import INTERNAL, LETTERS, NAMES
        from motif_jax.envs.nethack.level_engine import LevelEngine

        level = LEVELS[task]
        return LevelEngine(
            buffers,
            (INTERNAL, LETTERS, NAMES) if level.unlocks else (INTERNAL,),
            playername=f"Agent-{level.character}",
            options=_NETHACK_OPTIONS if level.autopickup else (*_NETHACK_OPTIONS, "!autopickup"),
            spawn_monsters=False,
        )


class MiniHackEnvironment(NetHackEnvironment):
    """A task of `levels.LEVELS`. The step limit is the level's own, or `max_episode_steps` if
    less.
    """

    make_spec = staticmethod(make_spec)
    group = MiniHackGroup
