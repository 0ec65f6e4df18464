"""Stand-ins that record their calls, or do at once what processes do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self


class RecordedProgress:
    """Stands for the class `Progress`, and records its calls."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.log = self.entries.append

    def __call__(self, *begun: Any) -> Self:
        self.entries.append(begun)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, done: int, **fields: Any) -> None:
        self.entries.append((done, fields))

    def show(self, **fields: Any) -> None:
        self.entries.append(fields)

    def __str__(self) -> str:
        return "\n".join(map(str, self.entries))


class StopsAfter(RecordedProgress):
    """An `Interruption` that comes when it was asked for so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def stopped(self) -> bool:
        self.left -= 1
        return self.left < 0

    requested = property(stopped)


def jobs_here(make: Any, setup: Any, jobs: Any, workers: int, stop: Any, *_: Any) -> Iterator[Any]:
    """`run_jobs` in this process, one after the other."""
    work = make(setup)
    for job in jobs:
        if stop.requested:
            break
        yield job, work.answer(job)
    work.close()
