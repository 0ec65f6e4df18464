"""Fixed situations that probe a language model's action, with all clauses and with one left out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any

from motif_jax.core import resources
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.envs.babyai_text.prompts import Window

OWN = "own"
_FILE = "configs/probes/babyai_text.json"
_KEYS = ("name", "goal", "observations", "actions")


@dataclasses.dataclass(frozen=True)
class Probe:
    """A fixed situation.

    Attributes:
      observations: clauses of each observation, oldest first; `actions` were taken between them.
      right: the action that leads to the goal; '' if unknown.
    """

    name: str
    goal: str
    observations: tuple[tuple[str, ...], ...]
    actions: tuple[str, ...]
    right: str = ""

    def prompt(self, actions: Sequence[str], language: str, without: tuple[int, int] | None = None) -> str:
        window = Window(len(self.observations))
        for place, clauses in enumerate(self.observations):
            kept = [text for number, text in enumerate(clauses) if (place, number) != without]
            if place == 0:
                window.start(kept)
            else:
                window.add(self.actions[place - 1], kept)
        return window.prompt(self.goal, actions, language)

    def places(self) -> Iterator[tuple[int, int]]:
        """Indices (observation, clause) of every clause."""
        for place, clauses in enumerate(self.observations):
            yield from ((place, number) for number in range(len(clauses)))


def read(which: str | os.PathLike[str]) -> list[Probe]:
    """Reads probes from a JSON list of objects with the fields of `Probe`, 'own' the package's; raises UserError."""
    path = resources.path(_FILE) if which == OWN else which
    remedy = "give a list of objects with name, goal, observations and actions, as configs/probes/babyai_text.json is"
    if not os.path.isfile(path):
        raise UserError(f"config.probes.prompts={str(which)!r}: must be '{OWN}', '' for none, or a JSON file")
    content: Any = read_json(path, remedy, list)
    if not content:
        raise UserError(f"{path} holds no probes: {remedy}")
    return [_probe(each, number, path, remedy) for number, each in enumerate(content)]


def _probe(each: Any, number: int, path: str | os.PathLike[str], remedy: str) -> Probe:
    good = isinstance(each, dict) and set(each) - {"right"} == set(_KEYS)
    good = good and _texts([each["name"], each["goal"], each.get("right", "")]) and _texts(each["actions"])
    good = good and isinstance(each["observations"], list) and all(map(_texts, each["observations"]))
    if not good or len(each["observations"]) != len(each["actions"]) + 1:
        form = "one action fewer than observations, each a list of clauses"
        raise UserError(f"{path}: probe {number} is invalid ({form}): {remedy}")
    seen = tuple(tuple(clauses) for clauses in each["observations"])
    return Probe(each["name"], each["goal"], seen, tuple(each["actions"]), each.get("right", ""))


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
