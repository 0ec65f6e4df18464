"""Files of an evaluation: a journal of episodes that survives a kill, and tables made from it."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import digests, entry_points, metric_files, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import (
    append_lines,
    atomic_write_bytes,
    atomic_write_json,
    finite,
    read_json,
    read_json_lines,
)
from motif_jax.envs.episode import PlayedEpisode
from motif_jax.envs.spec import OBSERVED, TRUNCATED
from motif_jax.play.messages import MessageTally

JOURNAL = "episodes.jsonl"
TABLE = "episodes.parquet"
SUMMARY = "evaluation.json"
MESSAGES = "messages.json"
# Entries of a plan: False where the environment's seed does not determine its games; True where its
# success is none.
SEEDED = "seeded"
SUCCESS_FALLS = "success_falls"
_DIGEST = "digest"
_SUMMARY_KEYS = (
    "plan",
    "episodes",
    "steps",
    "steps_per_second",
    "confidence",
    "intervals",
    "measures",
    "digest",
)
_REWRITE = "the same evaluate command writes it again"
# Dtype, and prefix, of packed actions of which any is 256 or more.
_WIDE = "<i4"
# Prefix of packed actions of real numbers, before their number.
_REAL = "<f4x"
_REMEDY = "take out that line, and evaluate plays its episode again"
REWARD = "intrinsic_return"


def encode_actions(actions: np.ndarray) -> str:
    """Packs actions into a short string: int32 [T], none below 0, with a prefix if any is 256 or
    more; or float32 [T, n].
    """
    values = np.asarray(actions)
    if values.ndim == 2:
        return f"{_REAL}{values.shape[1]}:{_packed(values.astype('<f4'))}"
    if values.size and values.min() < 0:
        raise ValueError(f"actions of at least 0 can be packed, not {values.min()}")
    wide = values.size > 0 and values.max() > 255
    return (f"{_WIDE}:" if wide else "") + _packed(values.astype(_WIDE if wide else np.uint8))


def _packed(values: np.ndarray) -> str:
    # Of base85's letters JSON escapes none.
    return base64.b85encode(zlib.compress(values.tobytes(), 9)).decode()


def decode_actions(text: str) -> np.ndarray:
    """The inverse of `encode_actions`; returns int32 [T] or float32 [T, n]."""
    prefix, _, packed = text.rpartition(":")  # base85 has no colon
    data = zlib.decompress(base64.b85decode(packed))
    if prefix.startswith(_REAL):
        return (
            np.frombuffer(data, "<f4")
            .reshape(-1, int(prefix.removeprefix(_REAL)))
            .astype(np.float32)
        )
    return np.frombuffer(data, prefix or np.uint8).astype(np.int32)


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a journal without a torn last line, [] without a file. Raises UserError: another
    line is damaged.
    """
    return list(read_json_lines(path, ["index"], _REMEDY))


def end_reason(truncated: bool, code: float | None) -> str:
    """How an episode ended, by the environment's number `end` if it has one."""
    ends = {1.0: "death", 2.0: "success", -1.0: "step limit", None: "end"}
    return "step limit" if truncated else ends.get(code, "end")


def episode_row(record: PlayedEpisode) -> dict[str, Any]:
    """The row of a played episode: its identity, numbers, end and actions."""
    reason = end_reason(record.end == TRUNCATED, record.info.get("end"))
    row = {"index": record.index, "seed": record.seed, **record.info, "length": len(record)}
    if "end" in record.info:
        row["deaths"] = float(reason == "death")
    return {**row, "end_reason": reason, "actions": encode_actions(record.actions)}


class Journal(contextlib.AbstractContextManager):
    """Appends one line per finished episode to a folder's journal, and keeps the earlier ones."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        path = Path(folder) / JOURNAL
        self.rows = read_rows(path)
        # Rows stay as they are; only a last line that a kill has torn goes.
        self._file = append_lines(path, keep=lambda line: True)

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @property
    def done(self) -> set[int]:
        """Indices of the episodes that the journal has."""
        return {row["index"] for row in self.rows}

    @property
    def session(self) -> int:
        """How often the evaluation was resumed."""
        return 1 + max((row["session"] for row in self.rows), default=-1)

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes and flushes one row, so that killing this process cannot lose it."""
        # Only top-level numbers: those of single tokens may be infinite.
        finite_row = {
            key: finite(value) if isinstance(value, float) else value for key, value in row.items()
        }
        self.rows.append(finite_row)
        self._file.write(json.dumps(finite_row) + "\n")
        self._file.flush()


def speed(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """(steps per second, seconds of play) over all sessions of a journal; (0, 0) without rows."""
    # A row has the seconds of its session so far, so the last row of a session has them all.
    seconds_by_session: dict[int, float] = {}
    for row in rows:
        session = row["session"]
        seconds_by_session[session] = max(
            seconds_by_session.get(session, 0.0), row["session_seconds"]
        )
    seconds = sum(seconds_by_session.values())
    steps = sum(row["length"] for row in rows)
    return (steps / seconds if seconds else 0.0), seconds


def write_parquet(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows ordered by index as parquet; packed actions become lists of integers, or of lists
    of real numbers.
    """
    import pyarrow
    import pyarrow.parquet

    # Numbers of `info` may be in some episodes alone; pyarrow takes its columns from the first row.
    columns = dict.fromkeys(name for row in rows for name in row)
    table = [
        {name: row.get(name) for name in columns}
        for row in sorted(rows, key=lambda row: row["index"])
    ]
    # A column of parquet has one type: that of its widest row.
    dtype = np.int32 if any(row.get("actions", "").startswith(_WIDE) for row in rows) else np.uint8
    for row in table:
        packed = row.get("actions")
        if packed is None:
            continue
        actions = decode_actions(packed)
        row["actions"] = actions.astype(dtype) if actions.ndim == 1 else list(actions)
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), buffer, compression="zstd")
    atomic_write_bytes(path, buffer.getvalue())


def write_summary(
    folder: str | os.PathLike[str], summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Writes evaluation.json with a digest of its contents and of the journal's rows that it
    summarises.
    """
    summary = finite(summary)
    atomic_write_json(Path(folder) / SUMMARY, {**summary, _DIGEST: _digest(summary, rows)})


def _digest(summary: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str:
    numbers = {key: value for key, value in summary.items() if key != _DIGEST}
    # A journal has the order in which episodes ended.
    in_order = sorted(rows, key=lambda row: row["index"])
    return digests.of_bytes(json.dumps([numbers, in_order], sort_keys=True).encode())


def read_evaluation(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The evaluation.json of a folder, with its episodes as 'rows'. Raises UserError: not finished,
    or its rows are others than those that it summarises.
    """
    path = Path(folder) / SUMMARY
    run_folder.read_config(folder)  # refuses another layout
    summary = read_json(path, _REWRITE, keys=_SUMMARY_KEYS)
    episodes = summary["episodes"]
    entry_points.note_source(folder, summary["plan"])
    # The journal has more rows than the summary if the folder was evaluated with more episodes
    # before.
    journal = Path(folder) / JOURNAL
    rows = {
        row["index"]: row
        for row in read_json_lines(journal, ["index"], _REMEDY)
        if row["index"] < episodes
    }
    if summary[_DIGEST] != _digest(summary, rows.values()):
        raise UserError(
            f"{path} or {JOURNAL} was changed after it was written (another digest): restore a copy, or evaluate into another --workdir"
        )
    in_order = [rows[index] for index in sorted(rows)]
    return {**summary, "rows": comparable_rows(summary["plan"], in_order)}


def comparable_rows(
    plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The rows, in which a number has one name in all of them: that of a success that fell in one
    episode is another in all.
    """
    if plan.get(SUCCESS_FALLS) or metric_files.success_falls(rows):
        return [metric_files.without_success(row) for row in rows]
    return list(rows)


def read_messages(folder: str | os.PathLike[str]) -> list[MessageTally]:
    """The messages seen in an evaluation; [] without the file."""
    path = Path(folder) / MESSAGES
    if not path.exists():
        return []
    run_folder.read_config(folder)  # refuses another layout
    return [MessageTally(**row) for row in read_json(path, _REWRITE, list)]


# Options that do not change the games, such as captions of a gymnasium environment.
_WITHOUT_EFFECT = (*OBSERVED, "text", "text_bytes", "change", "last_text")
# Switches of `compat` that change what is shown of a game, what is counted, or how its end is
# called.
_SWITCHES_WITHOUT_EFFECT = ("crop_row_offset", "message_count_off", "timeout_as_terminal")


def games(evaluation: Mapping[str, Any], key: str) -> dict[tuple[str, int], float]:
    """Game -> the number `key`, for episodes that have it; a game is an environment with its
    options, and a seed.

    Where the seed does not determine the game, it is one of this evaluation alone.
    """
    plan = evaluation["plan"]
    options = _of_game(plan.get("options") or {})
    # 'drawn_from' is of text tasks: what their dialogues are drawn from, without the agent's part.
    identity = [plan["environment"], plan.get("drawn_from", options)]
    if not plan.get(SEEDED, True):
        identity.append(evaluation[_DIGEST])
    environment = json.dumps(identity, sort_keys=True)
    return {
        (environment, row["seed"]): float(row[key])
        for row in evaluation["rows"]
        if row.get(key) is not None
    }


def _of_game(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that decide a game and its numbers; switches that are off, and what is empty, are
    none.
    """
    switches = {
        name: value
        for name, value in (options.get("compat") or {}).items()
        if value and name not in _SWITCHES_WITHOUT_EFFECT
    }
    rest = {
        name: value
        for name, value in options.items()
        if name not in (*_WITHOUT_EFFECT, "compat") and value not in ("", None)
    }
    return {**rest, "compat": switches} if switches else rest


# Keys of a reward that name what it is read from.
_REWARD_PATHS = ("dir", "table", "vectors")


def is_of_the_reward(key: str) -> bool:
    """Whether the number `key` depends on the reward that the evaluation was rated by."""
    return key in (REWARD, "intrinsic_return_uncounted")


def reward_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """How the rewards that rated two evaluations differ, as 'dir a and b; step 1 and 2'; '' if they
    are equal.

    Where both rewards have files, and so a digest, it counts in place of its folder: the
    same reward may lie elsewhere now, and another one may have been trained where it lay.
    """
    one = first["plan"].get("reward") or {}
    other = second["plan"].get("reward") or {}
    contents = [
        evaluation["plan"].get("digests", {}).get("reward") for evaluation in (first, second)
    ]
    if None in contents:
        return rewards_apart(one, other)
    without_paths = [
        {key: value for key, value in reward.items() if key not in _REWARD_PATHS}
        for reward in (one, other)
    ]
    settings = rewards_apart(*without_paths)
    if contents[0] == contents[1]:
        return settings
    key = next((key for key in _REWARD_PATHS if one.get(key) or other.get(key)), "dir")
    files = f"{key} {one.get(key)} and {other.get(key)}, of different contents"
    return "; ".join(filter(None, [files, settings]))


def rewards_apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """As `reward_differences`, of two rewards from evaluation plans."""
    first = _with_absolute_folder(one)
    second = _with_absolute_folder(other)
    differing = [key for key in dict.fromkeys([*one, *other]) if first.get(key) != second.get(key)]
    return "; ".join(f"{key} {one.get(key)} and {other.get(key)}" for key in differing)


def _with_absolute_folder(reward: Mapping[str, Any]) -> dict[str, Any]:
    return {**reward, "dir": reward.get("dir") and os.path.abspath(reward["dir"])}


def comparable(first: Mapping[str, Any], second: Mapping[str, Any], key: str) -> bool:
    """Whether the number `key` means the same in two evaluations: intrinsic returns of different
    rewards do not.
    """
    return not is_of_the_reward(key) or not reward_differences(first, second)


def require_comparable(
    evaluations: Mapping[Any, Mapping[str, Any]], key: str, config_key: str
) -> None:
    """Raises UserError, naming `config.{config_key}`, unless all of `evaluations` (by name) are
    `comparable` by `key`.
    """
    first = next(iter(evaluations), None)
    for name, evaluation in evaluations.items():
        if not comparable(evaluations[first], evaluation, key):
            differing = reward_differences(evaluations[first], evaluation)
            raise UserError(
                f"config.{config_key}={key}: {first} and {name} were rated by different rewards ({differing}): evaluate both with the same config.reward"
            )
