"""What must come out of a run whatever was done to it: of scenarios.py."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Compared(NamedTuple):
    """What must be the same whatever was done to a run, in words, and what gives it from its folder
    and the trial's.

    It can be written as JSON; AssertionError where something is wrong in itself.
    """

    words: str
    of: Callable[[Path, Path], Any]


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def files(*patterns: str) -> Compared:
    """Digests of the files that the patterns name."""

    def outcome(workdir: Path, trial: Path) -> dict[str, str]:
        digests = {}
        for pattern in patterns:
            for path in workdir.glob(pattern):
                digests[str(path.relative_to(workdir))] = _digest(path.read_bytes())
        assert digests, f"{workdir} holds none of {patterns}"
        return digests

    return Compared(f"bytes of {', '.join(f'`{name}`' for name in patterns)}", outcome)


def params(*patterns: str) -> Compared:
    """The digest of the newest checkpoint's parameters, and those of files."""
    more = files(*patterns)

    def outcome(workdir: Path, trial: Path) -> dict[str, str]:
        import jax
        import numpy as np

        from motif_jax.core import digests
        from motif_jax.core.checkpoints import ANY, Checkpoints

        with Checkpoints(workdir / "checkpoints", read_only=True) as checkpoints:
            step = checkpoints.latest()
            tree = checkpoints.restore(step, {"params": ANY})["params"]
        tensors = {
            jax.tree_util.keystr(path): np.asarray(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        }
        digest = {"params": digests.of_tensors(str(step), tensors)}
        return digest | more.of(workdir, trial) if patterns else digest

    return Compared(f"parameters, {more.words}" if patterns else "parameters", outcome)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def episodes(*summaries: str) -> Compared:
    """The rows of all journals of episodes without what depends on the clock, each episode once."""

    def outcome(workdir: Path, trial: Path) -> Any:
        contents: dict[str, Any] = {}
        for journal in workdir.rglob("episodes.jsonl"):
            rows = rows_of(journal)
            assert len({row["index"] for row in rows}) == len(rows), (
                f"{journal} holds an episode twice"
            )
            rows = [_without_session(row) for row in rows]
            contents[str(journal.relative_to(workdir))] = sorted(rows, key=lambda row: row["index"])
        for name in summaries:
            contents[name] = json.loads((workdir / name).read_text())["measures"]
        assert contents
        return contents

    return Compared(
        ", ".join(["each episode's row", *(f"means of `{name}`" for name in summaries)]), outcome
    )


def _without_session(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("session")}


def counters(steps: int) -> Compared:
    """Of a training whose course hangs on timing: it came to its end, and nothing is counted or
    played twice.
    """

    def outcome(workdir: Path, trial: Path) -> Any:
        reached = [row["step"] for row in rows_of(workdir / "metrics.jsonl")]
        assert reached == sorted(set(reached)), "steps go back"
        played = [(row["env"], row["episode"]) for row in rows_of(workdir / "episodes.jsonl")]
        assert len(set(played)) == len(played), "an episode stands there twice"
        return {"reached": reached[-1] >= steps}

    return Compared("all steps done, none and no episode twice", outcome)


def labels(trained: Compared) -> Compared:
    """Besides `trained`: no question has two labels."""

    def outcome(workdir: Path, trial: Path) -> Any:
        from motif_jax.core.checked_lines import read_lines

        label_of: dict[str, Any] = {}
        for path in (trial / "store").glob("*.jsonl"):
            for question, answer in read_lines(path):
                label = label_of.setdefault(question, answer["label"])
                assert label == answer["label"], "two labels for one question"
        assert label_of
        return trained.of(workdir, trial)

    return Compared(f"{trained.words}, one label a question", outcome)


def inside(name: str, *patterns: str) -> Compared:
    """What was written into a trial's own copy of an input."""
    compared = files(*patterns)
    return Compared(compared.words, lambda workdir, trial: compared.of(trial / name, trial))


def rows(name: str, *without: str) -> Compared:
    """The lines of a file in their order, each without what hangs on the clock or the machine."""

    def outcome(workdir: Path, trial: Path) -> Any:
        return [
            {k: v for k, v in row.items() if k not in without} for row in rows_of(workdir / name)
        ]

    return Compared(f"lines of `{name}`", outcome)


def first_lines(name: str, count: int) -> Compared:
    """The first lines of a file that may have more of them after a second start."""

    def outcome(workdir: Path, trial: Path) -> Any:
        rows = rows_of(workdir / name)
        assert [row["game"] for row in rows] == [*range(len(rows))], "a game is missing or twice"
        return rows[:count]

    return Compared(f"each line of `{name}`", outcome)


# A page says when it was made.
_TIMES = re.compile(r'\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?|data-value="[^"]*">[^<]* ago')


def page(name: str, *patterns: str) -> Compared:
    """A page without its times and the trial's own folder, and files beside it."""
    more = files(*patterns)

    def outcome(workdir: Path, trial: Path) -> Any:
        text = (workdir / name).read_text(encoding="utf-8")
        plain = _TIMES.sub("", text).replace(str(trial), "")
        return {"page": _digest(plain.encode())} | more.of(workdir, trial)

    return Compared(f"`{name}` but for its times, {more.words}", outcome)
