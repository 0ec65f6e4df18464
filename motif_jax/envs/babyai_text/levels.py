"""The levels of BabyAI-Text that minigrid lacks, drawn in the published fork's order.

Source: the fork of gym-minigrid and BabyAI in github.com/flowersteam/Grounding_LLMs_with_online_RL
(MIT), and minigrid 3.2, whose classes these extend. A level draws from numpy's PCG64 seeded by
`reset(seed=)`, so the order of draws is fixed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from minigrid.core.constants import COLOR_NAMES
from minigrid.core.roomgrid import Room, RoomGrid
from minigrid.core.world_object import Door, WorldObj
from minigrid.envs.babyai.core import roomgrid_level, verifier
from minigrid.envs.babyai.core.levelgen import LevelGen
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import OBJ_TYPES, GoToInstr, Instr, ObjDesc, PickupInstr

from motif_jax.envs.babyai_text.catalogue import LevelRecipe
from motif_jax.envs.spec import ArraySpec

# minigrid prints each redrawn mission to the standard output, which is for programs' results.
roomgrid_level.print = lambda *words: None  # type: ignore[attr-defined]


# The class of an instruction about one object.
_About = Callable[[ObjDesc], verifier.ActionInstr]


class LocalLevel(RoomGridLevel):
    """One room of 8 x 8 cells with objects that the mission does not need, redrawn until it has no
    `excluded` text.
    """

    def __init__(
        self, *, excluded: Collection[str], distractors: int = 8, num_cols: int = 1, **options: Any
    ) -> None:
        self._excluded = tuple(excluded)
        self._distractors = distractors
        super().__init__(room_size=8, num_rows=1, num_cols=num_cols, **options)

    def _redraw_until_allowed(self, attempt: Callable[[], Instr]) -> Instr:
        """Redraws the rooms until every object is reachable and the mission has no excluded
        text.
        """
        while True:
            # Not `super()`: the level's own `_gen_grid` has called `gen_mission`, and so this
            # function.
            RoomGrid._gen_grid(self, self.width, self.height)
            instruction = attempt()
            mission = instruction.surface(self)
            if self._reachable and not any(text in mission for text in self._excluded):
                return instruction

    def _scatter(self, extra: int) -> list[WorldObj]:
        """Places the agent and returns the distractors with `extra` objects; sets `_reachable`."""
        self.place_agent()
        objects = self.add_distractors(num_distractors=self._distractors + extra, all_unique=False)
        # Without an exception: the fork draws the mission, too, before it gives a drawn level up.
        self._reachable = self.check_objs_reachable(raise_exc=False)
        return objects

    def _one_object(self, instruction: _About) -> Instr:
        """A mission about one of the objects."""
        return instruction(_described(self._rand_elem(self._scatter(1))))

    def _draw_two(self, objects: list[WorldObj]) -> tuple[WorldObj, WorldObj]:
        """Draws two objects; redraws the second while it is the first, unless another object looks
        the same.
        """
        first = self._rand_elem(objects)
        second = self._rand_elem(objects)
        alike = sum((thing.type, thing.color) == (first.type, first.color) for thing in objects)
        while alike == 1 and second is first:
            second = self._rand_elem(objects)
        return first, second

    def _put_next(self) -> Instr:
        """The mission to put one object next to another."""
        first, second = self._draw_two(self._scatter(2))
        return verifier.PutNextInstr(_described(first), _described(second))

    def _sequence(self, first: _About, second: _About, orders: tuple[str, ...]) -> Instr:
        """The mission to do `first`, then `second`, worded by one of `orders`: 'before' (A, then B)
        or 'after' (B after you A).
        """
        first_object, second_object = self._draw_two(self._scatter(2))
        before = first(_described(first_object))
        after = second(_described(second_object))
        order = self._rand_elem(orders) if len(orders) > 1 else orders[0]
        if order == "before":
            return verifier.BeforeInstr(before, after)
        return verifier.AfterInstr(after, before)


class MixedLocal(LocalLevel):
    """A level of one of `catalogue.KINDS`; `doors` are colours of the locked one of `open`,
    `names_door`: it is named.
    """

    def __init__(
        self, *, kind: str, doors: tuple[str, ...], names_door: bool, **options: Any
    ) -> None:
        self.kind = kind
        self._doors = doors
        self._names_door = names_door
        # A locked door needs a second room behind it.
        super().__init__(num_cols=2 if kind == "open" else 1, **options)

    def gen_mission(self) -> None:
        # A draw of the published level, which picks the kind from a list of one.
        self._rand_elem([self.kind])
        attempts = {
            "goto": lambda: self._one_object(GoToInstr),
            "pickup": lambda: self._one_object(PickupInstr),
            "open": self._open,
            "putnext": self._put_next,
            "pick up seq go to": lambda: self._sequence(
                PickupInstr, GoToInstr, ("before", "after")
            ),
        }
        self.instrs = self._redraw_until_allowed(attempts[self.kind])

    def _open(self) -> Instr:
        """The mission to open the locked door; with its colour, or in half of the Train missions
        without.
        """
        color = self._rand_elem(self._doors)
        locked_room, (column, row) = self._lock_room(color)
        self.connect_all()
        self.add_distractors(column, row, self._distractors, all_unique=False)
        while True:
            self.place_agent()
            if self.room_from_pos(*self.agent_pos) is not locked_room:
                break
        self._reachable = self.check_objs_reachable(raise_exc=False)
        door_color = color if self._names_door else self._rand_elem([None, color])
        return verifier.OpenInstr(ObjDesc("door", door_color))

    def _lock_room(self, color: str) -> tuple[Room, tuple[int, int]]:
        """Locks a room with a door of `color`; returns it, and the (column, row) of the other room
        that has the key.
        """
        while True:
            column = self._rand_int(0, self.num_cols)
            row = self._rand_int(0, self.num_rows)
            wall = self._rand_int(0, 4)
            room = self.get_room(column, row)
            if room.neighbors[wall] is not None:
                break
        door: Door = self.add_door(column, row, wall, color, locked=True)[0]
        while True:
            column = self._rand_int(0, self.num_cols)
            row = self._rand_int(0, self.num_rows)
            if self.get_room(column, row) is not room:
                break
        self.add_object(column, row, "key", door.color)
        return room, (column, row)


class SequenceLocal(LocalLevel):
    """Missions to pick up an object and then go to another ('goto') or pick it up; `orders`: see
    `LocalLevel._sequence`.
    """

    def __init__(self, *, second: str, orders: tuple[str, ...], **options: Any) -> None:
        instructions: dict[str, _About] = {"goto": GoToInstr, "pickup": PickupInstr}
        self._second = instructions[second]
        self._orders = orders
        super().__init__(**options)

    def gen_mission(self) -> None:
        self.instrs = self._redraw_until_allowed(
            lambda: self._sequence(PickupInstr, self._second, self._orders)
        )


class ColoredLevel(LevelGen):
    """minigrid's generator without locked rooms; every description names a colour, `doors_open`: of
    open doors alone.
    """

    def __init__(self, *, distractors: int = 8, doors_open: bool = False, **options: Any) -> None:
        self._doors_open = doors_open
        super().__init__(
            num_dists=distractors,
            locked_room_prob=0,
            locations=False,
            unblocking=False,
            implicit_unlock=False,
            **options,
        )

    def gen_mission(self) -> None:
        super().gen_mission()
        if self._doors_open:
            self.open_all_doors()

    def rand_obj(
        self,
        types: Sequence[str] = OBJ_TYPES,
        colors: Sequence[str] = COLOR_NAMES,
        max_tries: int = 100,
    ) -> ObjDesc:
        """The colour and type of some object. Raises RecursionError (minigrid catches it): none
        after `max_tries`.
        """
        for _ in range(max_tries):
            description = ObjDesc(self._rand_elem(types), self._rand_elem(colors))
            if description.find_matching_objs(self)[0]:
                return description
        raise RecursionError("failed to find suitable object")


def build(level: LevelRecipe, kind: str | None, distractors: int | None = None) -> RoomGridLevel:
    """Makes the level, of a `kind` if it has kinds; `distractors` replaces its default, if
    `distractors_of` has one.
    """
    options = dict(level.options) if kind is None else {**level.options, "kind": kind}
    if distractors is not None:
        option_and_default = distractors_of(level)
        assert option_and_default is not None
        option, _ = option_and_default
        options[option] = distractors
    maker = _MAKERS.get(level.maker)
    if maker is not None:
        return maker(**options)
    return cast(
        RoomGridLevel, gymnasium.make(level.maker, disable_env_checker=True, **options).unwrapped
    )


def distractors_of(level: LevelRecipe) -> tuple[str, int] | None:
    """(option, default) of a level's number of distractors; None without such an option."""
    options = dict(level.options)
    maker = _MAKERS.get(level.maker)
    if maker is not None:
        option = "distractors"
        # A class may pass the option on to its base.
        classes: tuple[Any, ...] = inspect.getmro(maker)
    else:
        option = "num_dists"
        registered = gymnasium.spec(level.maker)
        entry: Any = registered.entry_point
        if isinstance(entry, str):
            entry = gymnasium.envs.registration.load_env_creator(entry)
        # gymnasium's registration may set the option for this name.
        options = {**registered.kwargs, **options}
        classes = (entry,)

    for level_class in classes:
        parameter = inspect.signature(level_class.__init__).parameters.get(option)
        if parameter is not None:
            return option, int(options.get(option, parameter.default))
    return None


_MAKERS: dict[str, type[RoomGridLevel]] = {
    "MixedLocal": MixedLocal,
    "SequenceLocal": SequenceLocal,
    "ColoredLevel": ColoredLevel,
}


def lit(world: RoomGridLevel) -> np.ndarray:
    """Which cells the agent sees: bool [width, height]."""
    _, visible = world.gen_obs_grid()
    forward = world.dir_vec
    right = world.right_vec
    size = world.agent_view_size
    # The view's first cell in the world: as far ahead as it reaches, and half of its width to the
    # left.
    corner = world.agent_pos + forward * (size - 1) - right * (size // 2)
    cells = np.zeros((world.width, world.height), bool)
    for column, row in np.argwhere(visible):
        x, y = corner - forward * row + right * column
        if 0 <= x < world.width and 0 <= y < world.height:
            cells[x, y] = True
    return cells


def grid_fields(width: int, height: int) -> dict[str, ArraySpec]:
    """The optional fields for renderers of a world of this size."""
    size = (width, height)
    return {
        "grid": ArraySpec((*size, 3), "uint8"),
        "lit": ArraySpec(size, "uint8"),
        "pose": ArraySpec((3,), "uint8"),
    }


def draw(world: RoomGridLevel, fields: Collection[str], out: Mapping[str, np.ndarray]) -> None:
    """Writes those of the `grid_fields` that are in `fields`, with zeros outside a smaller
    world.
    """
    shape = (slice(0, world.width), slice(0, world.height))
    if "grid" in fields:
        out["grid"][...] = 0
        out["grid"][shape] = world.grid.encode()
    if "lit" in fields:
        out["lit"][...] = 0
        out["lit"][shape] = lit(world)
    if "pose" in fields:
        out["pose"][...] = (*world.agent_pos, world.agent_dir)


def _described(thing: WorldObj) -> ObjDesc:
    return ObjDesc(thing.type, thing.color)
