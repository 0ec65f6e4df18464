"""Crafter by its symbols or by its pictures, with captions of events."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from crafter import constants, objects

from motif_jax.core.errors import UserError
from motif_jax.core.text_bytes import cut, encode, padded
from motif_jax.envs.crafter import catalogue
from motif_jax.envs.crafter.captions import before_step, caption
from motif_jax.envs.crafter.game import CrafterGame
from motif_jax.envs.spec import (
    RUNNING,
    TERMINATED,
    TRUNCATED,
    ArraySpec,
    Environment,
    EnvironmentSpec,
)

TEXT_BYTES = 128
# Cells that the player sees, as in the package's picture.
COLUMNS = 9
ROWS = 7
# The package's numbers of materials (0: outside the world) and objects, and one more for a plant
# that is ripe.
_MATERIALS = 1 + len(constants.materials)
_OBJECTS = 6
_RIPE = _MATERIALS + _OBJECTS
CHANNELS = _RIPE + 1
_ONE_HOT = np.eye(CHANNELS, dtype=np.uint8)
_MAX_OF_AN_ITEM = 9
_FACINGS = ((-1, 0), (1, 0), (0, -1), (0, 1))
_FACING_ONE_HOT = np.eye(len(_FACINGS), dtype=np.uint8)
_PICTURE_SIDE = 64
_FRAME_SIDE = 360
_FRAME = "frame"
_AREA = (64, 64)
# A world has room for the 9 x 9 cells of a picture; the package's chunks are 12 x 12.
_LEAST_SIDE = 12
# The package's limit.
_MAX_STEPS = 10_000
_SEEDS = 1 << 32


def make_spec(
    name: str,
    *,
    fields: Iterable[str] = (),
    max_episode_steps: int = _MAX_STEPS,
    kwargs: Mapping[str, Any] | None = None,
) -> EnvironmentSpec:
    """The spec of `Crafter` with these options. Raises UserError: `kwargs` has another key than
    area, or no area.
    """
    _area(**(kwargs or {}))
    optional = {_FRAME: ArraySpec((_FRAME_SIDE, _FRAME_SIDE, 3), "uint8")}
    if unknown := sorted(set(fields) - set(optional)):
        raise ValueError(f"{name} has no fields {', '.join(unknown)}")
    if name == catalogue.PIXELS:
        shown = {"picture": ArraySpec((_PICTURE_SIDE, _PICTURE_SIDE, 3), "uint8")}
    else:
        shown = {
            "view": ArraySpec((COLUMNS * ROWS * CHANNELS,), "uint8"),
            "inventory": ArraySpec((len(constants.items),), "float32"),
            "facing": ArraySpec((len(_FACINGS),), "uint8"),
            "condition": ArraySpec((2,), "float32"),
        }
    return EnvironmentSpec(
        observation={
            **shown,
            "text": ArraySpec((TEXT_BYTES,), "uint8"),
            "text_count": ArraySpec((), "int32"),
            **{field: optional[field] for field in fields},
        },
        num_actions=len(constants.actions),
        text_field="text",
        count_field="text_count",
        observed_text=False,
        image_fields=("picture",) if name == catalogue.PIXELS else (),
        episode_fields=("achievements", *constants.achievements),
        family="Crafter",
        action_names=tuple(action.replace("_", " ") for action in constants.actions),
        optional_fields=optional,
        renderer="motif_jax.envs.crafter.renderer:CrafterRenderer",
        modules=("motif_jax.envs.crafter.environment",),
    )


def _area(area: Sequence[int] = _AREA) -> tuple[int, int]:
    """Width and height of the world. Raises UserError: it is too small for the game."""
    width, height = area
    if min(width, height) < _LEAST_SIDE:
        raise UserError(
            f"config.environment.kwargs: area={area}: must be [width, height] of the world, each at least {_LEAST_SIDE} cells"
        )
    return width, height


class Crafter(Environment):
    """Crafter's game, with its rewards: 1 for a step with achievements that are new in the episode,
    0.1 for a point of health.

    Observation of `Crafter-v1`: `view` uint8 [1260], the 9 x 7 cells around the player, one-hot
    [column, row, 13 materials + 6 objects + ripe plant]; `inventory` float32 [16], health, needs
    and items divided by 9; `facing` uint8 [4], one-hot; `condition` float32 [2], whether the player
    sleeps, and the daylight from 0 to 1. It shows the night, too, as bright as day. Of
    `CrafterPixels-v1`: `picture` uint8 [64, 64, 3], the package's. Of both: `text` uint8 [128], the
    last step's caption, UTF-8 padded with zeros; `text_count` int32, how often it was seen in this
    episode; `frame` uint8 [360, 360, 3] on request.

    An episode ends with the player's death. `episode_info` adds 1 for each achievement that the
    episode reached, and their number as `achievements`.

    Attributes:
      game: the game, whose world and player a test or a script may change between steps.
    """

    make_spec = staticmethod(make_spec)

    def __init__(
        self,
        name: str,
        *,
        fields: Iterable[str] = (),
        max_episode_steps: int = _MAX_STEPS,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.spec = make_spec(name, fields=fields, kwargs=kwargs)
        self.game = CrafterGame(_area(**(kwargs or {})))
        self._limit = max_episode_steps

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        # The package's old generator of numpy takes 32 bits.
        self.game.begin(seed % _SEEDS)
        self._return = 0.0
        self._counts = collections.Counter[bytes]()
        self._write("", out)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        self.spec.check_action(action)
        game = self.game
        name = constants.actions[action]
        # A caption compares the states before and after the step.
        before = before_step(name, game)
        reward = game.play(action)
        self._return += reward
        self._write(caption(name, before, game), out)
        if game.player.health <= 0:
            return reward, TERMINATED
        return reward, TRUNCATED if game.steps >= self._limit else RUNNING

    def episode_info(self) -> dict[str, float]:
        counts = self.game.player.achievements
        achieved = {name: float(counts[name] > 0) for name in constants.achievements}
        return {
            "return": self._return,
            "length": float(self.game.steps),
            "achievements": sum(achieved.values()),
            **achieved,
        }

    def _write(self, text: str, out: Mapping[str, np.ndarray]) -> None:
        game = self.game
        player = game.player
        if "picture" in self.spec.observation:
            out["picture"][...] = game.picture(_PICTURE_SIDE)
        else:
            # [COLUMNS, ROWS] numbers become [COLUMNS, ROWS, CHANNELS], then one row.
            out["view"][...] = _ONE_HOT[self._cells()].reshape(-1)
            out["inventory"][...] = (
                np.array(list(player.inventory.values()), np.float32) / _MAX_OF_AN_ITEM
            )
            out["facing"][...] = _FACING_ONE_HOT[_FACINGS.index(tuple(player.facing))]
            out["condition"][...] = player.sleeping, game.world.daylight
        if _FRAME in self.spec.observation:
            out[_FRAME][...] = game.picture(_FRAME_SIDE)
        # Counted as it is shown: of two texts with the same beginning the second is not new.
        data = cut(encode(text), TEXT_BYTES)
        self._counts[data] += 1
        out["text"][...] = padded(data, TEXT_BYTES)
        out["text_count"][...] = self._counts[data]

    def _cells(self) -> np.ndarray:
        """What the player sees, as numbers of `CHANNELS`: uint8 [COLUMNS, ROWS], the player in the
        middle.
        """
        world = self.game.semantic
        # The package has one number for all plants; its picture shows whether one is ripe.
        for thing in self.game.world.objects:
            if isinstance(thing, objects.Plant) and thing.ripe:
                world[tuple(thing.pos)] = _RIPE
        column, row = self.game.player.pos
        left = column - COLUMNS // 2
        top = row - ROWS // 2
        cells = np.zeros((COLUMNS, ROWS), np.uint8)
        # At the edge of the world the rest stays 0.
        inside = world[max(left, 0) : left + COLUMNS, max(top, 0) : top + ROWS]
        first_column = max(-left, 0)
        first_row = max(-top, 0)
        cells[
            first_column : first_column + inside.shape[0], first_row : first_row + inside.shape[1]
        ] = inside
        return cells
