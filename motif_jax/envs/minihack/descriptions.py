"""Level descriptions (.des): MiniHack's files, and generated ones for its tasks.

Generated descriptions equal those of MiniHack's LevelGenerator line for line (Apache-2.0; see
third_party/minihack/).
"""

from __future__ import annotations

import functools

from motif_jax.core import resources

_HEADER = """
MAZE: "mylevel", ' '
FLAGS:{flags}
INIT_MAP: solidfill,' '
GEOMETRY:center,center"""
_BATTLE = """\
-----       ----------------------
|...|       |....................|
|....#######.....................|
|...|       |....................|
-----       ----------------------
"""
_LABYRINTH = """\
-------------------------------------
|.................|.|...............|
|.|-------------|.|.|.------------|.|
|.|.............|.|.|.............|.|
|.|.|----------.|.|.|------------.|.|
|.|.|...........|.|.............|.|.|
|.|.|.|----------.|-----------|.|.|.|
|.|.|.|...........|.......|...|.|.|.|
|.|.|.|.|----------------.|.|.|.|.|.|
|.|.|.|.|.................|.|.|.|.|.|
|.|.|.|.|.-----------------.|.|.|.|.|
|.|.|.|.|...................|.|.|.|.|
|.|.|.|.|--------------------.|.|.|.|
|.|.|.|.......................|.|.|.|
|.|.|.|-----------------------|.|.|.|
|.|.|...........................|.|.|
|.|.|---------------------------|.|.|
|.|...............................|.|
|.|-------------------------------|.|
|...................................|
-------------------------------------
"""
_SMALL_LABYRINTH = """\
--------------------
|.......|.|........|
|.-----.|.|.-----|.|
|.|...|.|.|......|.|
|.|.|.|.|.|-----.|.|
|.|.|...|....|.|.|.|
|.|.--------.|.|.|.|
|.|..........|...|.|
|.|--------------|.|
|..................|
--------------------
"""


RANDOM = "random"
ANYONE = "MONSTER:random,random"
_ANYTHING = "OBJECT:random,random"
_TELEPORT = 'TRAP:"teleport",random'

# Column and row in the map of a level.
Position = tuple[int, int]


@functools.cache
def from_file(name: str) -> str:
    """The text of one of MiniHack's files."""
    return resources.path(f"third_party/minihack/{name}.des").read_text(encoding="utf-8")


def maze(rows: str, *lines: str, lit: bool = True, flags: str = "hardfloor") -> str:
    """A level with a map (a line per row) and the `lines` that fill it."""
    cells = rows.splitlines()
    width = max(map(len, cells))
    area = "".join(f"{row:{width}}\n" for row in cells)
    region = f'REGION:(0,0,{width},{len(cells)}),{"lit" if lit else "unlit"},"ordinary"'
    return "\n".join([_HEADER.format(flags=flags), f"MAP\n{area}ENDMAP", region, *lines, ""])


def floor(width: int, height: int) -> str:
    """The map of an empty room."""
    return f"{'.' * width}\n" * height


def goal(position: Position | str = RANDOM) -> str:
    """The stairs down."""
    return f"STAIR:{position},down"


def start(first: Position, last: Position | None = None) -> str:
    """The hero's start: a position, or anywhere in a rectangle."""
    x, y = first
    # The second rectangle is where the hero never starts: for a single position a cell beside it.
    excluded = (0, 0) if last else (abs(x - 1), abs(y - 1))
    return "BRANCH:({},{},{},{}),({},{},{},{})".format(
        *first, *(last or first), *excluded, *excluded
    )


def room(
    size: int, anywhere: bool = True, monsters: int = 0, traps: int = 0, lit: bool = True
) -> str:
    """A room with stairs, `anywhere` or in the corner opposite the hero's."""
    ends = [goal()] if anywhere else [goal((size - 1, size - 1)), start((0, 0))]
    return maze(floor(size, size), *ends, *[ANYONE] * monsters, *[_TELEPORT] * traps, lit=lit)


def key_room(size: int, closet: int, lit: bool = True) -> str:
    """A room with a key and a closet with the stairs behind a locked door."""
    text = from_file("key_and_door_tmp").replace("RS", str(size)).replace("SS", str(closet))
    # Of the room and of the closet: 'lit' stands in the file for nothing else.
    return text if lit else text.replace("lit", "unlit")


def river(monsters: int = 0, lava: bool = False, narrow: bool = False) -> str:
    """A river, with boulders to fill it."""
    beds = ["WW." if narrow else "WWW"] * 7
    if lava:
        beds = ["LLL", "LLL", "WWW", "LLL", "WWW", "LLL", "LLL"]
    return maze(
        "".join(f"{'.' * 18}{bed}....\n" for bed in beds),
        start((0, 0), (18, 6)),
        *[ANYONE] * monsters,
        "$boulder_area = selection:fillrect (1,1,18,5)",
        *["OBJECT:('`',\"boulder\"),rndcoord($boulder_area)"] * 5,
        goal((24, 2)),
    )


def battle(lit: bool = True) -> str:
    """Six giant rats, a room and a corridor to fight them in."""
    rats = [f'MONSTER:"giant rat",({x}, {y})' for x in (30, 31) for y in (1, 2, 3)]
    return maze(_BATTLE, start((1, 1), (3, 3)), *rats, goal((32, 2)), lit=lit)


def labyrinth(small: bool) -> str:
    """A labyrinth with one long path to the stairs."""
    if small:
        return maze(_SMALL_LABYRINTH, start((9, 1)), goal((14, 5)))
    return maze(_LABYRINTH, start((19, 1)), goal((19, 7)))


def maze_walk(width: int, height: int, mapped: bool) -> str:
    """A random maze, with its map known from the start or not."""
    # With the outer walls.
    width += 2
    height += 2
    return maze(
        floor(width, height),
        f"TERRAIN:rect (0,0,{width - 1},{height - 1}),'-'",
        f"TERRAIN:fillrect (1,1,{width - 2},{height - 2}),' '",
        f"MAZEWALK:({width // 2},{height // 2}),east",
        goal(),
        flags="hardfloor,premapped" if mapped else "hardfloor",
    )


def skill(thing: str, kind: str = "") -> str:
    """A small room with `thing`, a line without its position; `kind`: '' anywhere, 'Fixed' in a
    corner, 'Distr' beside others.
    """
    lines = [thing.format((0, 0) if kind == "Fixed" else RANDOM)]
    lines += {"Fixed": [start((2, 2))], "Distr": [ANYONE, _ANYTHING]}.get(kind, [])
    return maze(floor(5, 5), *lines)
