"""What a call measures on a GPU machine: its items, and the time that they need."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable
from typing import Any

from gpu_logs import Reader


@dataclasses.dataclass(frozen=True)
class Item:
    """A measurement: a command, the seconds after which it is ended, and those that it needs at
    least.

    `timed` items run until their limit: a training by the clock. Items of `benchmark` have no
    command: those that follow each other run in one process.
    """

    name: str
    command: list[str]
    read: Reader
    limit: float
    reserve: float
    timed: bool = False
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    benchmark: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one call measures, in at most `seconds`: chains of `together` run side by side, then
    `alone` one after the other.

    Items of `on_request` run where --items names them.
    """

    name: str
    seconds: float
    together: list[list[Item]]
    alone: list[Item]
    on_request: list[Item] = dataclasses.field(default_factory=list)

    def items(self) -> list[Item]:
        return [*itertools.chain(*self.together), *self.alone, *self.on_request]

    def only(self, names: Collection[str]) -> Plan:
        """The plan with the items of these names alone."""
        together = [[item for item in chain if item.name in names] for chain in self.together]
        alone = [item for item in (*self.alone, *self.on_request) if item.name in names]
        return dataclasses.replace(
            self, together=[chain for chain in together if chain], alone=alone, on_request=[]
        )

    def stretched(self, factor: float) -> Plan:
        """The plan with `factor` times the limits of all items that end by themselves."""

        def longer(items: Iterable[Item]) -> list[Item]:
            return [
                item if item.timed else dataclasses.replace(item, limit=factor * item.limit)
                for item in items
            ]

        together = [longer(chain) for chain in self.together]
        return dataclasses.replace(
            self, together=together, alone=longer(self.alone), on_request=longer(self.on_request)
        )

    def needed_seconds(self) -> float:
        """Seconds that the items need at least."""
        # Chains run side by side, so that the longest counts.
        chains = [sum(item.reserve for item in chain) for chain in self.together]
        return max(chains, default=0.0) + sum(item.reserve for item in self.alone)
