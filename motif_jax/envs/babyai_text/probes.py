"""Fixed situations that probe a language model's action, with all clauses and with one left out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
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
    return [_probe(entry, path) for entry in read_json(path, remedy, list)]


def _probe(entry: Mapping[str, Any], path: str | os.PathLike[str]) -> Probe:
    probe = Probe(
        name=entry["name"],
        goal=entry["goal"],
        observations=tuple(tuple(clauses) for clauses in entry["observations"]),
        actions=tuple(entry["actions"]),
        right=entry.get("right", ""),
    )
    # Further actions would be left out of the prompt.
    if len(probe.observations) != len(probe.actions) + 1:
        raise UserError(f"{path}: {probe.name} must have one action fewer than observations")
    return probe
