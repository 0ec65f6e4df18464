"""Logs the training's episodes: one line each in episodes.jsonl, and means over the newest ones."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from motif_jax.core import metric_files
from motif_jax.core.files import json_line, read_json_lines, regular_file, replaced_file
from motif_jax.rl.reward_lookup import IntrinsicReturn

FILE_NAME = "episodes.jsonl"
_ENOUGH_EPISODES = 100
_NOT_AVERAGED = frozenset({"step", "env", "episode", "seed", "end", "truncated"})


class EpisodeLog(ExitStack):
    """Joins the actors' report of an episode with the intrinsic return that the batcher sums up.

    Each host joins the episodes of its actors; every host receives all episodes, and the one with a
    `workdir` writes them. Lines after the checkpoint of `progress` are dropped: its steps are taken
    again.

    Args:
      window: number of newest episodes that means are over.
      with_intrinsic: whether an episode is complete only with its intrinsic return.
      progress: of the checkpoint that the run resumes from.
      fields: names of the environment's numbers of an episode.

    Attributes:
      success_falls: whether the environment's success was true and then false within an episode;
          from then on no episode's counts as a success.
    """

    def __init__(
        self,
        workdir: Path | None,
        window: int,
        with_intrinsic: bool,
        progress: Mapping[str, Any] = MappingProxyType({}),
        fields: Iterable[str] = (),
        success_falls: bool = False,
    ) -> None:
        super().__init__()
        # (environment, episode) -> report or return of episodes that lack the other.
        self._reports: dict[tuple[int, int], dict[str, Any]] = {}
        self._returns: dict[tuple[int, int], float] = {}
        self._with_intrinsic = with_intrinsic

        self._file: IO[str] | None = None
        if workdir is not None:
            step = progress.get("env_steps", -1)
            self._file = self.enter_context(_open(workdir / FILE_NAME, step))

        averaged = {"return", "length", *fields} - _NOT_AVERAGED
        if with_intrinsic:
            averaged.add("intrinsic_return")
        self._empty_row = {f"episode/{name}": math.nan for name in sorted(averaged)}
        self._newest: deque[dict[str, Any]] = deque(
            map(dict, progress.get("episodes", ())), maxlen=window
        )
        self.success_falls = success_falls or metric_files.success_falls(self._newest)
        self._done: dict[int, int] = {}  # environment -> its newest logged episode
        for row in self._newest:
            self._mark_done(row)

    def join(
        self, step: int, reports: Iterable[Mapping[str, Any]], returns: Iterable[IntrinsicReturn]
    ) -> list[dict[str, Any]]:
        """Takes reports and intrinsic returns, in either order, at environment step `step`; returns
        the episodes that are complete.
        """
        for intrinsic in returns:
            self._returns[intrinsic.env, intrinsic.episode] = intrinsic.value
        for report in reports:
            self._reports[_key(report)] = {"step": step, **report}
        complete = [
            key for key in self._reports if key in self._returns or not self._with_intrinsic
        ]
        rows = [self._finish(key) for key in complete]
        # A rollout that was lost with its actor brings no return: none comes after a later episode
        # of the same environment was logged. Returns of episodes that are never reported (begun
        # before the first slot) are dropped by the same rule.
        rows += [self._finish(key) for key in list(self._reports) if self._is_past(key)]
        self._returns = {
            key: value for key, value in self._returns.items() if not self._is_past(key)
        }
        return rows

    def join_rest(
        self, step: int, reports: Iterable[Mapping[str, Any]], returns: Iterable[IntrinsicReturn]
    ) -> list[dict[str, Any]]:
        """As `join`, at the end of a run; returns the episodes without an intrinsic return, too."""
        return self.join(step, reports, returns) + [
            self._finish(key) for key in list(self._reports)
        ]

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Adds complete episodes to the means, and to the file of the host that writes."""
        rows = list(rows)
        self.success_falls = self.success_falls or metric_files.success_falls(rows)
        for row in rows:
            if self.success_falls:
                row = metric_files.without_success(row)
            self._newest.append(dict(row))
            if self._file is not None:
                self._file.write(json_line(row))
        if self._file is not None:
            self._file.flush()

    def means(self) -> dict[str, float]:
        """Means over the newest episodes, of the finite values of each number that all of them
        reported.

        A number that some episodes lack has no mean: of a success that `info` shows after successes
        alone it would be 1.
        """
        rows = list(self._newest)
        if self.success_falls:
            # Earlier ones may still have it, under the name of a rate.
            rows = [metric_files.without_success(row) for row in rows]
        names = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
        means = {}
        for name in names:
            values = [
                row[name] for row in rows if row[name] is not None and math.isfinite(row[name])
            ]
            if name not in _NOT_AVERAGED and values:
                means[f"episode/{name}"] = sum(values) / len(values)
        return means

    def row(self) -> dict[str, float]:
        """`means` with the same names at every call: NaN where no episode has reported one."""
        return self._empty_row | self.means()

    def has_enough_episodes(self) -> bool:
        """Whether the means are over enough episodes to compare checkpoints by them."""
        return len(self._newest) >= min(_ENOUGH_EPISODES, self._newest.maxlen or _ENOUGH_EPISODES)

    def state(self) -> list[dict[str, Any]]:
        """The newest episodes, for the progress."""
        return list(self._newest)

    def _finish(self, key: tuple[int, int]) -> dict[str, Any]:
        report = self._reports.pop(key)
        row = {**report, "intrinsic_return": self._returns.pop(key, None)}
        self._mark_done(row)
        return row

    def _is_past(self, key: tuple[int, int]) -> bool:
        return self._done.get(key[0], -1) > key[1]

    def _mark_done(self, row: Mapping[str, Any]) -> None:
        self._done[row["env"]] = max(self._done.get(row["env"], -1), row["episode"])


def _key(row: Mapping[str, Any]) -> tuple[int, int]:
    return int(row["env"]), int(row["episode"])


def _open(path: Path, step: int) -> IO[str]:
    """Opens the file for appending, without the lines after `step`."""
    if path.exists():
        # Row by row: a long run has millions.
        rows = read_json_lines(path, ["step", "env", "episode"])
        valid = (row for row in rows if row["step"] <= step)
        with replaced_file(path) as part, open(part, "x", encoding="utf-8") as file:
            file.writelines(map(json_line, valid))
    return open(path, "a", encoding="utf-8", opener=regular_file)
