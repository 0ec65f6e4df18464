"""Scripted players that explore and walk to their goals, so that fights, gold and stairs occur.

Their actions depend only on the episode's seed and the screen (`tty_chars`, `tty_colors`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping

from motif_jax.core import seeds
from motif_jax.envs.episode import Choose, Observation
from motif_jax.envs.nethack.actions import TASK_KEYS
from motif_jax.envs.nethack.random_players import HABITS, Habit
from motif_jax.envs.nethack.status import DEPTH, X, Y
from motif_jax.envs.spec import EnvironmentSpec

# Optional fields that they read.
FIELDS = ("tty_chars", "tty_colors")

# Size of the map, which begins in the screen's second row.
_ROWS = 21
_COLUMNS = 80
_STEPS = {
    "k": (0, -1), "l": (1, 0), "j": (0, 1), "h": (-1, 0), "u": (1, -1), "n": (1, 1), "b": (-1, 1), "y": (-1, -1),
}  # fmt: skip
# (action, change of cell, whether it is diagonal), straight ones first.
_MOVES = tuple(
    (TASK_KEYS.index(ord(key)), y * _COLUMNS + x, x * y != 0) for key, (x, y) in _STEPS.items()
)
_DOWN = TASK_KEYS.index(ord(">"))
_SEARCH = TASK_KEYS.index(ord("s"))
_FLOOR = frozenset(b'.#<>$%*!?/="()[{_')
# Without monsters that are dangerous to touch: floating eyes, molds.
_MONSTERS = frozenset(b"abcdfghijklmnopqrstuvwxyzABCDEGHIJKLMNOPQRSTUVWXYZ&;':")
_DOOR_COLOUR = 3  # colour of + | - that are doors
# A kitten, little dog or pony by its letter and colour.
_PETS = frozenset(b"dfu")
_PET_COLOURS = frozenset((7, 15, 3))
_UNSEEN = ord(" ")
# Failed steps before a cell is given up.
_PATIENCE = 3
# Steps during which monsters are left alone, after a peaceful one.
_PEACE = 100
# Searches for hidden things in an explored level, before the hero walks at random.
_SEARCHES = 6


@dataclasses.dataclass(frozen=True)
class Errand:
    """A scripted player that attacks adjacent monsters, walks to the map characters `wanted`, and
    `hunts`: to monsters.
    """

    hunts: bool = False
    wanted: bytes = b""

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        """Returns a policy for the episode `seed`, if `has_habits(spec)`. Raises ValueError: no
        screen.
        """
        if missing := ", ".join(name for name in FIELDS if name not in spec.observation):
            raise ValueError(
                f"scripted players read {missing}, which this environment does not show"
            )
        habit = HABITS["walker"].actions(seeds.derive(seed, "errand"), spec.num_actions)
        return _Game(self, habit).choose


class _Game:
    def __init__(self, errand: Errand, habit: Iterator[int]) -> None:
        self._errand = errand
        self._habit = habit
        self._level = -1
        self._plan: deque[tuple[int, int]] = deque()  # (action, cell it leads to)
        self._goal = 0  # the character that the plan leads to
        self._fails = Counter[int]()  # cell -> how often the hero did not get there
        self._visited: set[int] = set()
        self._peace = 0
        self._searched = 0
        self._wander = 0

    def choose(self, observation: Observation) -> int:
        self._peace = max(0, self._peace - 1)
        if b"Really attack" in observation["message"].tobytes():
            self._peace = _PEACE
            return _SEARCH  # a key that does not mean yes
        status = observation["blstats"]
        hero = int(status[Y]) * _COLUMNS + int(status[X])
        if self._arrives(int(status[DEPTH]), hero) and self._goal == ord(">"):
            self._fails[hero] += 1  # the stairs may be none: limits further attempts
            return _DOWN
        level_map = _Map(
            observation["tty_chars"][1 : 1 + _ROWS].tobytes(),
            observation["tty_colors"][1 : 1 + _ROWS].tobytes(),
            {cell for cell, times in self._fails.items() if times >= _PATIENCE},
        )
        attack = level_map.attack(hero)
        if not self._peace and attack is not None:
            self._plan.clear()
            return attack
        if self._wander:
            self._wander -= 1
            return next(self._habit)
        return self._walk(level_map, hero)

    def _arrives(self, level: int, hero: int) -> bool:
        """Records the hero's cell; returns whether the plan's end is reached."""
        arrived = False
        if level != self._level:
            self._level = level
            self._fails = Counter()
            self._visited = set()
            self._searched = 0
            self._plan.clear()
        elif self._plan:
            _, cell = self._plan.popleft()
            arrived = hero == cell and not self._plan
            if hero != cell:  # something is in the way
                self._fails[cell] += 1
                self._plan.clear()
        self._visited.add(hero)
        return arrived

    def _walk(self, level_map: _Map, hero: int) -> int:
        """The next step of the plan or of a new one; without a plan a search for hidden things."""
        hunts = self._errand.hunts and not self._peace
        if not self._plan or (hunts and level_map.monsters):
            # Monsters move, so a hunt is planned anew at each step.
            self._plan = self._new_plan(level_map, hero, hunts)
            self._goal = level_map.chars[self._plan[-1][1]] if self._plan else 0
        if self._plan:
            self._searched = 0
            return self._plan[0][0]
        self._searched += 1
        if self._searched % _SEARCHES == 0:
            # Nothing was found: explores the level once more, from where a random walk ends.
            self._visited = {hero}
            self._wander = 2 * _SEARCHES
        return _SEARCH

    def _new_plan(self, level_map: _Map, hero: int, hunts: bool) -> deque[tuple[int, int]]:
        """A path to the first goal that there is one to: monsters, things on the errand's list,
        unexplored cells.
        """
        goals: list[Callable[[int], bool]] = [level_map.monsters.__contains__] if hunts else []
        goals += [functools.partial(level_map.shows, char) for char in self._errand.wanted]
        goals.append(lambda cell: cell not in self._visited and level_map.leads_on(cell))
        for goal in goals:
            path = level_map.path(hero, goal)
            if path:
                return path
        return deque()


class _Map:
    """The map as the screen shows it; a cell is row * 80 + column."""

    def __init__(self, chars: bytes, colours: bytes, blocked: Collection[int]) -> None:
        self.chars = chars
        self._colours = colours
        self._blocked = blocked
        self.monsters = {
            cell for cell, char in enumerate(chars) if char in _MONSTERS and not self._is_pet(cell)
        }

    def _is_pet(self, cell: int) -> bool:
        return self.chars[cell] in _PETS and self._colours[cell] in _PET_COLOURS

    def shows(self, char: int, cell: int) -> bool:
        return self.chars[cell] == char

    def leads_on(self, cell: int) -> bool:
        """Whether a cell next to `cell` has not been seen yet."""
        if cell in self.monsters:
            return False
        neighbours = (cell + change for _, change, _ in _MOVES)
        return any(
            0 <= other < len(self.chars) and self.chars[other] == _UNSEEN for other in neighbours
        )

    def attack(self, hero: int) -> int | None:
        """The action that attacks a monster next to `hero`; None without one."""
        return next(
            (action for action, change, _ in _MOVES if hero + change in self.monsters), None
        )

    def _is_door(self, cell: int) -> bool:
        return self.chars[cell] in b"+|-" and self._colours[cell] == _DOOR_COLOUR

    def _is_free(self, cell: int) -> bool:
        # The hero swaps places with a pet, and walking into a monster attacks it.
        return self.chars[cell] in _FLOOR or self._is_pet(cell) or cell in self.monsters

    def path(self, start: int, goal: Callable[[int], bool]) -> deque[tuple[int, int]]:
        """The shortest path from `start` to a cell with `goal`, breadth first: (action, cell) of
        each step; empty without one.
        """
        # Cell -> the action that led there, and the cell before.
        origins: dict[int, tuple[int, int]] = {start: (-1, -1)}
        queue = deque([start])
        while queue:
            cell = queue.popleft()
            from_door = self._is_door(cell)
            for action, change, is_diagonal in _MOVES:
                neighbour = cell + change
                if (
                    not 0 <= neighbour < len(self.chars)
                    or neighbour in origins
                    or neighbour in self._blocked
                ):
                    continue
                to_door = self._is_door(neighbour)
                if not to_door and not self._is_free(neighbour):
                    continue
                # Nobody walks diagonally through a door.
                if is_diagonal and (from_door or to_door):
                    continue
                origins[neighbour] = (action, cell)
                if goal(neighbour):
                    return _path_to(neighbour, origins)
                if neighbour not in self.monsters:  # a monster is a goal or blocks the way
                    queue.append(neighbour)
        return deque()


def _path_to(cell: int, origins: Mapping[int, tuple[int, int]]) -> deque[tuple[int, int]]:
    path: deque[tuple[int, int]] = deque()
    while True:
        action, before = origins[cell]
        if action < 0:
            return path
        path.appendleft((action, cell))
        cell = before


ERRANDS: Mapping[str, Errand] = {
    "fighter": Errand(hunts=True),
    "collector": Errand(wanted=b"$>"),
    "diver": Errand(wanted=b">"),
}
# All players for config.mixture of collect.
PLAYERS: Mapping[str, Habit | Errand] = {**HABITS, **ERRANDS}
