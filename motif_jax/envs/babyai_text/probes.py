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

# Value of `config.probes.prompts` for the built-in probes.
PACKAGE_PROBES = "own"
_FILE = "configs/probes/babyai_text.json"
# Files of a run folder, which a page shows: the situations, a line for each update or checkpoint
# with the probability of every action, and the same with each clause left out in turn.
DESCRIPTION = "probes.json"
LINES = "probes.jsonl"
CLAUSES = "clauses.jsonl"
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

    def prompt(
        self, actions: Sequence[str], language: str, left_out: tuple[int, int] | None = None
    ) -> str:
        """The prompt of the situation in `language`, without the clause `left_out`, an element of
        `clause_indices`.
        """
        window = Window(len(self.observations))
        for index, clauses in enumerate(self.observations):
            rest = [text for number, text in enumerate(clauses) if (index, number) != left_out]
            if index == 0:
                window.start(rest)
            else:
                window.add(self.actions[index - 1], rest)
        return window.prompt(self.goal, actions, language)

    def clause_indices(self) -> Iterator[tuple[int, int]]:
        """Indices (observation, clause) of every clause."""
        for index, clauses in enumerate(self.observations):
            for number in range(len(clauses)):
                yield index, number


def read(prompts: str | os.PathLike[str]) -> list[Probe]:
    """Reads probes (`config.probes.prompts`) from a JSON list of objects with the fields of
    `Probe`, 'own' the built-in ones; raises UserError.
    """
    path = resources.path(_FILE) if prompts == PACKAGE_PROBES else prompts
    remedy = "give a list of objects with name, goal, observations and actions, like configs/probes/babyai_text.json"
    if not os.path.isfile(path):
        raise UserError(
            f"config.probes.prompts={str(prompts)!r}: must be '{PACKAGE_PROBES}' (the built-in probes), '' (none), or a JSON file"
        )
    content: Any = read_json(path, remedy, list)
    if not content:
        raise UserError(f"{path} holds no probes: {remedy}")
    return [_probe(entry, number, path, remedy) for number, entry in enumerate(content)]


def _probe(entry: Any, number: int, path: str | os.PathLike[str], remedy: str) -> Probe:
    if not _is_valid(entry):
        form = "one action fewer than observations, each a list of clauses"
        raise UserError(f"{path}: the probe at index {number} is invalid ({form}): {remedy}")
    return Probe(
        name=entry["name"],
        goal=entry["goal"],
        observations=tuple(tuple(clauses) for clauses in entry["observations"]),
        actions=tuple(entry["actions"]),
        right=entry.get("right", ""),
    )


def _is_valid(entry: Any) -> bool:
    # `right` may be left out.
    if not isinstance(entry, dict) or set(entry) - {"right"} != set(_KEYS):
        return False
    if not _are_texts([entry["name"], entry["goal"], entry.get("right", "")]):
        return False
    actions = entry["actions"]
    observations = entry["observations"]
    if not _are_texts(actions) or not isinstance(observations, list):
        return False
    return all(map(_are_texts, observations)) and len(observations) == len(actions) + 1


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
