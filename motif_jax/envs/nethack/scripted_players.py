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

_ROWS, _COLUMNS = 21, 80  # size of the map, which begins in the screen's second row
_STEPS = {
    "k": (0, -1), "l": (1, 0), "j": (0, 1), "h": (-1, 0), "u": (1, -1), "n": (1, 1), "b": (-1, 1), "y": (-1, -1),
}  # fmt: skip
# (action, change of place, whether it is diagonal), straight ones first.
_WAYS = tuple((TASK_KEYS.index(ord(key)), y * _COLUMNS + x, x * y != 0) for key, (x, y) in _STEPS.items())
_DOWN, _SEARCH = TASK_KEYS.index(ord(">")), TASK_KEYS.index(ord("s"))
_FLOOR = frozenset(b'.#<>$%*!?/="()[{_')
# Without monsters that are dangerous to touch: floating eyes, molds.
_MONSTERS = frozenset(b"abcdfghijklmnopqrstuvwxyzABCDEGHIJKLMNOPQRSTUVWXYZ&;':")
_DOOR_COLOUR = 3  # colour of + | - that are doors
_PETS, _PET_COLOURS = frozenset(b"dfu"), frozenset((7, 15, 3))  # kitten, little dog, pony
_UNSEEN = ord(" ")
# Steps without progress before a place is given up; steps during which a peaceful monster is ignored; searches in a
# fully explored place.
_PATIENCE, _PEACE, _SEARCHES = 3, 100, 6


@dataclasses.dataclass(frozen=True)
class Errand:
    """A scripted player that attacks adjacent monsters, walks to the map characters `wanted`, and `hunts`: to monsters."""

    hunts: bool = False
    wanted: bytes = b""

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        """Returns a policy for the episode `seed`, if `has_habits(spec)`. Raises ValueError: no screen."""
        if missing := ", ".join(name for name in FIELDS if name not in spec.observation):
            raise ValueError(f"scripted players read {missing}, which this environment does not show")
        habit = HABITS["walker"].actions(seeds.derive(seed, "errand"), spec.num_actions)
        return _Game(self, habit).choose


class _Game:
    def __init__(self, errand: Errand, habit: Iterator[int]) -> None:
        self._errand, self._habit = errand, habit
        self._level = -1
        self._plan: deque[tuple[int, int]] = deque()  # (action, place it leads to)
        self._goal = 0  # the character that the plan leads to
        self._fails = Counter[int]()  # place -> how often the hero did not get there
        self._visited: set[int] = set()
        self._peace = self._searched = self._wander = 0

    def choose(self, observation: Observation) -> int:
        self._peace = max(0, self._peace - 1)
        if b"Really attack" in observation["message"].tobytes():
            self._peace = _PEACE
            return _SEARCH  # a key that does not mean yes
        status = observation["blstats"]
        at = int(status[Y]) * _COLUMNS + int(status[X])
        if self._arrives(int(status[DEPTH]), at) and self._goal == ord(">"):
            self._fails[at] += 1  # the stairs may be none: limits further attempts
            return _DOWN
        seen = _Map(
            observation["tty_chars"][1 : 1 + _ROWS].tobytes(),
            observation["tty_colors"][1 : 1 + _ROWS].tobytes(),
            {place for place, times in self._fails.items() if times >= _PATIENCE},
        )
        if not self._peace and (beside := seen.beside(at)) is not None:
            self._plan.clear()
            return beside
        if self._wander:
            self._wander -= 1
            return next(self._habit)
        return self._walk(seen, at)

    def _arrives(self, level: int, at: int) -> bool:
        """Records the hero's place; returns whether the plan's end is reached."""
        arrived = False
        if level != self._level:
            self._level, self._fails, self._visited, self._searched = level, Counter(), set(), 0
            self._plan.clear()
        elif self._plan:
            _, place = self._plan.popleft()
            arrived = at == place and not self._plan
            if at != place:  # something is in the way
                self._fails[place] += 1
                self._plan.clear()
        self._visited.add(at)
        return arrived

    def _walk(self, seen: _Map, at: int) -> int:
        """The next step of the plan or of a new one; without a plan a search for hidden things."""
        hunts = self._errand.hunts and not self._peace
        if not self._plan or (hunts and seen.monsters):
            goals: list[Callable[[int], bool]] = [seen.monsters.__contains__] if hunts else []
            goals += [functools.partial(seen.shows, char) for char in self._errand.wanted]
            goals.append(lambda place: place not in self._visited and seen.leads_on(place))
            self._plan = next(filter(None, (seen.path(at, goal) for goal in goals)), deque())
            self._goal = seen.chars[self._plan[-1][1]] if self._plan else 0
        if self._plan:
            self._searched = 0
            return self._plan[0][0]
        self._searched += 1
        if self._searched % _SEARCHES == 0:
            self._visited, self._wander = {at}, 2 * _SEARCHES
        return _SEARCH


class _Map:
    """The map as the screen shows it; a place is row * 80 + column."""

    def __init__(self, chars: bytes, colours: bytes, blocked: Collection[int]) -> None:
        self.chars, self._colours, self._blocked = chars, colours, blocked
        self.monsters = {
            place for place, char in enumerate(chars) if char in _MONSTERS and not self._is_pet(place)
        }

    def _is_pet(self, place: int) -> bool:
        return self.chars[place] in _PETS and self._colours[place] in _PET_COLOURS

    def shows(self, char: int, place: int) -> bool:
        return self.chars[place] == char

    def leads_on(self, place: int) -> bool:
        chars = self.chars
        return place not in self.monsters and any(
            0 <= place + by < len(chars) and chars[place + by] == _UNSEEN for _, by, _ in _WAYS
        )

    def beside(self, at: int) -> int | None:
        """The action that attacks a monster next to `at`; None without one."""
        return next((action for action, by, _ in _WAYS if at + by in self.monsters), None)

    def _is_door(self, place: int) -> bool:
        return self.chars[place] in b"+|-" and self._colours[place] == _DOOR_COLOUR

    def path(self, start: int, goal: Callable[[int], bool]) -> deque[tuple[int, int]]:
        """The shortest path from `start` to a place with `goal`, breadth first: (action, place) of each step; empty without one."""
        chars, blocked = self.chars, self._blocked
        came: dict[int, tuple[int, int]] = {start: (-1, -1)}
        queue = deque([start])
        while queue:
            at = queue.popleft()
            straight_only = self._is_door(at)
            for action, by, diagonal in _WAYS:
                to = at + by
                if not 0 <= to < len(chars) or to in came or to in blocked:
                    continue
                door = self._is_door(to)
                # The hero swaps places with a pet.
                free = door or chars[to] in _FLOOR or self._is_pet(to) or to in self.monsters
                if not free or (diagonal and (straight_only or door)):
                    continue
                came[to] = (action, at)
                if goal(to):
                    return _steps(came, to)
                if to not in self.monsters:  # a monster is a goal or blocks the way
                    queue.append(to)
        return deque()


def _steps(came: Mapping[int, tuple[int, int]], to: int) -> deque[tuple[int, int]]:
    found: deque[tuple[int, int]] = deque()
    while came[to][0] >= 0:
        action, before = came[to]
        found.appendleft((action, to))
        to = before
    return found


ERRANDS: Mapping[str, Errand] = {
    "fighter": Errand(hunts=True),
    "collector": Errand(wanted=b"$>"),
    "diver": Errand(wanted=b">"),
}
# All players for config.mixture of collect.
PLAYERS: Mapping[str, Habit | Errand] = {**HABITS, **ERRANDS}
