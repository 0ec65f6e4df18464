"""MiniHack's tasks by name: level, actions, hero, rules and step limit, as published."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from motif_jax.envs.minihack import descriptions
from motif_jax.envs.nethack.actions import ESCAPE, SPACE

KICK = 4
APPLY = ord("a")
NORTH_WEST = ord("y")
PRAY = 0xF0
QUAFF = ord("q")
# Glyph numbers of things on the map.
CLOSED_DOORS = (2374, 2375)
ALTAR = 2386
SINK = 2389

_COMPASS = (*b"kljhunby",)
_NAVIGATE = (*_COMPASS, ord("o"), KICK, ord("s"))
_KICK = (*_COMPASS, ord("o"), KICK)
_KEY = (*_COMPASS, ord(","), APPLY)
# nle's useful actions without "up", in its order.
_ALL = (
    *_COMPASS, *b"KLJHUNBY>.", 13, 0xE1, *b"a", 24, *b"CZ", 0xE3, *b"c", 0xE4, *b"dDeE", 0xE5, ESCAPE, *b"Ff", 0xE6, *b"iI",
    0xE9, 0xEA, KICK, *b":", 0xEC, 0xED, *b"mM", 0xEF, *b"op,", PRAY, *b"PqQrR", 0xD2, 0xF2, *b"gGs[=(^)!", 0xF3, *b"xTAt",
    0xD4, 0xF4, *b"X", 0xF5, *b"vWw", 0xF7, *b'z+"$', SPACE,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class SolvingEvent:
    """Solves a task instead of the stairs down: one of `messages`, or `key` on the glyph `site`,
    then `NORTH_WEST` for yes.
    """

    messages: tuple[bytes, ...] = ()
    key: int = 0
    site: int = 0


@dataclasses.dataclass(frozen=True)
class MiniHackLevel:
    """One task.

    Attributes:
        describe: episode seed -> level description; imports `modules`.
        keys: the actions.
        character: the hero, in nle's notation.
        asks: whether single-key questions are left for the agent to answer.
        unlocks: whether applying a key opens a locked door beside the hero in one step.
        event: solves the task; None if only the stairs do.
    """

    describe: Callable[[int], str]
    max_steps: int
    keys: tuple[int, ...] = _COMPASS
    character: str = "rog-hum-cha-mal"
    autopickup: bool = True
    asks: bool = False
    unlocks: bool = False
    event: SolvingEvent | None = None
    modules: tuple[str, ...] = ()


def _fixed(make: Callable[..., str], *arguments: object, **options: Any) -> Callable[[int], str]:
    """The same description for every episode; the engine draws its random parts."""
    # Made on first use: the table of levels reads no file.
    description = functools.cache(functools.partial(make, *arguments, **options))
    return lambda seed: description()


def _file(name: str) -> Callable[[int], str]:
    return _fixed(descriptions.from_file, name)


def _rooms() -> Iterator[tuple[str, MiniHackLevel]]:
    for size, monsters, traps in ((5, 1, 1), (15, 3, 15)):
        kinds: dict[str, dict[str, Any]] = {
            "": {"anywhere": False},
            "Random-": {},
            "Dark-": {"lit": False},
            "Monster-": {"monsters": monsters},
            "Trap-": {"traps": traps},
            "Ultimate-": {"lit": False, "monsters": monsters, "traps": traps},
        }
        for kind, options in kinds.items():
            describe = _fixed(descriptions.room, size, **options)
            yield f"Room-{kind}{size}x{size}", MiniHackLevel(describe, 20 * size)


def _key_rooms() -> Iterator[tuple[str, MiniHackLevel]]:
    level = MiniHackLevel(_file("key_and_door"), 200, _KEY, autopickup=False, unlocks=True)
    yield "KeyRoom-Fixed-S5", level
    for size, closet, steps in ((5, 2, 200), (15, 5, 400)):
        for kind, lit in (("", True), ("Dark-", False)):
            describe = _fixed(descriptions.key_room, size, closet, lit)
            yield (
                f"KeyRoom-{kind}S{size}",
                dataclasses.replace(level, describe=describe, max_steps=steps),
            )


def _multi_rooms() -> Iterator[tuple[str, MiniHackLevel]]:
    # minigrid's N4-S5 has six rooms.
    sizes = {2: (2, 4, 40), 4: (6, 5, 120), 6: (6, 10, 240), 10: (10, 10, 360)}
    lava: dict[str, Any] = {"wall": "L"}
    for number, (rooms, room_size, steps) in sizes.items():
        many = 3 * number // 2
        few = number // 2
        kinds: dict[str, dict[str, Any]] = {"": {}, "-Lava": lava}
        # MiniHack has these up to six rooms.
        if number < 10:
            kinds |= {
                "-Locked": {"doors": "locked"},
                "-Monster": {"monsters": many},
                "-Extreme": {"monsters": many, "doors": "locked", **lava},
                "-LavaMonsters": {"monsters": few, **lava},
            }
        if number > 4:
            kinds |= {"-OpenDoor": {"doors": "open"}, "-Lava-OpenDoor": {"doors": "open", **lava}}
        for kind, options in kinds.items():
            keys = _KICK if options.get("doors") == "locked" else _COMPASS
            describe = functools.partial(_multi_room, rooms=rooms, room_size=room_size, **options)
            yield (
                f"MultiRoom-N{number}{kind}",
                MiniHackLevel(describe, steps, keys, modules=(_MULTI_ROOM,)),
            )


_MULTI_ROOM = "motif_jax.envs.minihack.multi_room"


def _multi_room(seed: int, **options: Any) -> str:
    # Imported here so that names can be looked up without minigrid.
    from motif_jax.envs.minihack import multi_room

    return multi_room.describe(seed, **options)


def _ways() -> Iterator[tuple[str, MiniHackLevel]]:
    for rooms in (2, 3, 5):
        yield f"Corridor-R{rooms}", MiniHackLevel(_file(f"corridor{rooms}"), 1000, _NAVIGATE)
    rivers: dict[str, dict[str, Any]] = {
        "": {},
        "-Monster": {"monsters": 5},
        "-Lava": {"lava": True},
        "-MonsterLava": {"monsters": 5, "lava": True},
        "-Narrow": {"narrow": True},
    }
    for kind, options in rivers.items():
        yield f"River{kind}", MiniHackLevel(_fixed(descriptions.river, **options), 350)
    for kind, lit in (("", True), ("-Dark", False)):
        battle = MiniHackLevel(_fixed(descriptions.battle, lit), 350, character="kni-hum-law-fem")
        yield f"CorridorBattle{kind}", battle
    for kind, small, steps in (("Big", False, 1000), ("Small", True, 400)):
        yield f"Labyrinth-{kind}", MiniHackLevel(_fixed(descriptions.labyrinth, small), steps)
    for width, height, steps in ((9, 9, 200), (15, 15, 1000), (45, 19, 1000)):
        for kind, mapped in (("", False), ("Mapped-", True)):
            describe = _fixed(descriptions.maze_walk, width, height, mapped)
            yield f"MazeWalk-{kind}{width}x{height}", MiniHackLevel(describe, steps)
    for kind, steps in (("", 200), ("-Mapped", 200), ("-Lava", 200), ("-Big", 400)):
        describe = _file("hidenseek" + kind.lower().replace("-", "_"))
        yield f"HideNSeek{kind}", MiniHackLevel(describe, steps)


def _skills() -> Iterator[tuple[str, MiniHackLevel]]:
    level = MiniHackLevel(
        _file("closed_door"), 250, _ALL, "cav-hum-neu-mal", autopickup=False, asks=True
    )
    yield "ClosedDoor", level
    yield "LockedDoor", dataclasses.replace(level, describe=_file("locked_door"))
    yield "LockedDoor-Fixed", dataclasses.replace(level, describe=_file("locked_door_fixed"))
    eaten = (
        b"This apple is delicious", b"Blecch!  Rotten food!", b"last bite of your meal", b"Delicious!  Must be a Macintosh!",
        b"Core dumped.",
    )  # fmt: skip
    wielded = (b"dagger welds itself to your hand!", b"dagger (weapon in hand)")
    things = {
        "Eat": ("OBJECT:('%',\"apple\"),{}", SolvingEvent(eaten)),
        "Pray": ("ALTAR:{},neutral,altar", SolvingEvent(key=PRAY, site=ALTAR)),
        "Sink": ("SINK:{}", SolvingEvent(key=QUAFF, site=SINK)),
        "Wield": ("OBJECT:(')',\"dagger\"),{}", SolvingEvent(wielded)),
        "Wear": ("OBJECT:('[',\"robe\"),{}", SolvingEvent((b"You are now wearing a robe",))),
        "PutOn": (
            'OBJECT:(\'"\',"amulet of life saving"),{}',
            SolvingEvent((b"amulet (being worn).",)),
        ),
        "Zap": ("OBJECT:('/',\"enlightenment\"),{}", SolvingEvent((b"The feeling subsides.",))),
        "Read": (
            "OBJECT:('?',\"blank paper\"),{}",
            SolvingEvent((b"This scroll seems to be blank.",)),
        ),
    }
    for name, (thing, event) in things.items():
        for kind in ("", "Fixed", "Distr"):
            describe = _fixed(descriptions.skill, thing, kind)
            shown = f"{name}-{kind}" if kind else name
            yield shown, dataclasses.replace(level, describe=describe, event=event)
    knight = dataclasses.replace(level, character="kni-hum-law-fem", autopickup=True)
    easy = _file("quest_easy")
    yield "Quest-Easy", dataclasses.replace(level, describe=easy, autopickup=True, max_steps=500)
    yield (
        "Quest-Medium",
        dataclasses.replace(knight, describe=_file("quest_medium"), max_steps=1000),
    )
    yield "Quest-Hard", dataclasses.replace(level, describe=_file("quest_hard"), max_steps=1000)


_KINDS = (_rooms, _key_rooms, _multi_rooms, _ways, _skills)
LEVELS: dict[str, MiniHackLevel] = {
    f"MiniHack-{name}-v0": level for kind in _KINDS for name, level in kind()
}
