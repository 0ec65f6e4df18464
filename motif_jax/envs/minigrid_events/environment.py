"""Minigrid levels with captions of events."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import minigrid  # noqa: F401 - registers its environments
import numpy as np

from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.envs.babyai_text.environment import encoded
from motif_jax.envs.babyai_text.levels import draw, grid_fields
from motif_jax.envs.babyai_text.sentences import OBJECTS, VIEW
from motif_jax.envs.minigrid_events import view
from motif_jax.envs.minigrid_events.captions import FORWARD, GridCell, caption
from motif_jax.envs.spec import (
    RUNNING,
    TERMINATED,
    TRUNCATED,
    ArraySpec,
    Environment,
    EnvironmentSpec,
)

TEXT_BYTES = 64
_EMPTY = GridCell(OBJECTS.index("empty"), 0, 0)
_DOOR = OBJECTS.index("door")
_DIRECTIONS = np.eye(4, dtype=np.uint8)


def make_spec(
    name: str, *, fields: Iterable[str] = (), max_episode_steps: int | None = None
) -> EnvironmentSpec:
    """The spec of `MiniGridEvents` with these options."""
    optional = _fields(name)
    if unknown := sorted(set(fields) - set(optional)):
        raise ValueError(f"{name} has no fields {', '.join(unknown)}")
    return EnvironmentSpec(
        observation={
            "view": ArraySpec((VIEW * VIEW * view.CHANNELS,), "uint8"),
            "direction": ArraySpec((4,), "uint8"),
            "text": ArraySpec((TEXT_BYTES,), "uint8"),
            "text_count": ArraySpec((), "int32"),
            **{field: optional[field] for field in fields},
        },
        num_actions=len(ACTIONS),
        text_field="text",
        count_field="text_count",
        episode_fields=("success", "through_door"),
        family="MiniGrid events",
        action_names=ACTIONS,
        optional_fields=optional,
        renderer="motif_jax.envs.minigrid_events.renderer:EventsRenderer",
    )


def _world(name: str) -> Any:
    return gymnasium.make(name, disable_env_checker=True).unwrapped


@functools.cache
def _fields(name: str) -> dict[str, ArraySpec]:
    world = _world(name)
    return grid_fields(world.width, world.height)


class MiniGridEvents(Environment):
    """One of `catalogue.LEVELS`.

    Observation: `view` uint8 [980], minigrid's view of 7 x 7 cells with the carried object, one-hot
    [column, row, object + colour + state]; `direction` uint8 [4], one-hot; `text` uint8 [64], the
    last step's caption, UTF-8 padded with zeros; `text_count` int32, how often it was seen in this
    episode.

    The reward is minigrid's: 1 - 0.9 t / limit (the level's) for success after t steps, else 0.
    `episode_info` adds success (0, 1) and through_door (1 if the agent stepped into a doorway).
    """

    make_spec = staticmethod(make_spec)

    def __init__(
        self, name: str, *, fields: Iterable[str] = (), max_episode_steps: int | None = None
    ) -> None:
        self.spec = make_spec(name, fields=fields)
        self._fields = frozenset(fields)
        self._world = _world(name)
        # minigrid would build its observation at every step; `view.agent_view` replaces it.
        self._world.gen_obs = dict
        limit = self._world.max_steps
        self._limit = limit if max_episode_steps is None else min(limit, max_episode_steps)

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self._world.reset(seed=seed)
        # The whole grid once an episode; steps renew single cells.
        self._codes = view.padded(self._world.grid.encode())
        self._return = 0.0
        self._success = 0.0
        self._through_door = 0.0
        self._counts = collections.Counter[str]()
        self._write("", out)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        self.spec.check_action(action)
        world = self._world
        column, row = map(int, world.front_pos)
        # An action changes no cell but the one in front of the agent, so only its code is renewed.
        before = self._cell(column, row)
        _, reward, terminated, _, _ = world.step(action)
        after = self._cell(column, row)
        self._codes[column + view.PAD, row + view.PAD] = view.code(*after)

        moved = action == FORWARD and tuple(world.agent_pos) == (column, row)
        self._through_door = max(self._through_door, float(moved and before.kind == _DOOR))
        self._return += reward
        self._success = float(self._success or reward > 0)
        self._write(caption(action, before, after, moved), out)
        if terminated:
            return float(reward), TERMINATED
        # minigrid's own flag is not asked, since this limit is at most its own.
        return float(reward), TRUNCATED if world.step_count >= self._limit else RUNNING

    def episode_info(self) -> dict[str, float]:
        return {
            "return": self._return,
            "length": float(self._world.step_count),
            "success": self._success,
            "through_door": self._through_door,
        }

    def _cell(self, column: int, row: int) -> GridCell:
        thing = self._world.grid.get(column, row)
        return _EMPTY if thing is None else GridCell(*thing.encode())

    def _write(self, text: str, out: Mapping[str, np.ndarray]) -> None:
        world = self._world
        self._counts[text] += 1
        carried = view.EMPTY if world.carrying is None else view.code(*world.carrying.encode())
        column, row = world.agent_pos
        out["view"][...] = view.agent_view(
            self._codes, column, row, world.agent_dir, carried
        ).reshape(-1)
        out["direction"][...] = _DIRECTIONS[world.agent_dir]
        out["text"][...] = encoded(text, TEXT_BYTES, "a caption")
        out["text_count"][...] = self._counts[text]
        if self._fields:
            draw(world, self._fields, out)
