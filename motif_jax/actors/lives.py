"""State of a pool's processes: present, ready, number of deaths and their causes."""

from __future__ import annotations

from collections.abc import Iterable

from motif_jax.actors.launchers import Death


class Lives:
    """The states of `count` processes, by number.

    Attributes:
      alive: started and not known to have ended.
      launched: in which generation of its group each was started.
      failures: how often each has died since its group finished a slot.
    """

    def __init__(self, count: int) -> None:
        self.alive: set[int] = set()
        self.launched = [0] * count
        self.failures = [0] * count
        self._started_at: list[float | None] = [None] * count
        self._errors: dict[int, str] = {}

    def begin(self, number: int, generation: int, clock: float) -> None:
        """The process is started."""
        self._started_at[number], self.launched[number] = clock, generation
        self._errors.pop(number, None)  # of one before it, whose end was not reported

    def is_up(self, numbers: Iterable[int]) -> bool:
        """Whether all have reported that they are up."""
        return all(self._started_at[number] is None for number in numbers)

    def came_up(self, number: int) -> None:
        """The process reports that it is up."""
        self._started_at[number] = None

    def late(self, clock: float, seconds: float) -> list[int]:
        """Processes started longer ago that are not up."""
        return [
            n for n, since in enumerate(self._started_at) if since is not None and clock - since > seconds
        ]

    def blame(self, number: int, reason: str) -> None:
        """Notes why the process is about to die."""
        self._errors[number] = reason

    def bury(self, deaths: Iterable[Death]) -> None:
        """Mark processes as dead; they are not reported again."""
        self.alive -= {death.member for death in deaths if death.generation == self.launched[death.member]}

    def end(self, death: Death, works: bool) -> str | None:
        """A process has ended; `works`: its group has finished a slot since it was started.

        Returns:
          Why; None if it was already replaced.
        """
        number, code = death.member, death.code
        if death.generation != self.launched[number]:
            return None
        self.failures[number] = 0 if works else self.failures[number] + 1
        reason = f"signal {-code}" if code < 0 else f"exit code {code}"
        error = self._errors.pop(number, None)
        return reason if error is None else f"{reason}\n{error}"
