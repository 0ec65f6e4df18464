"""Small pairs datasets, and the annotate stage's command line, for the tests beside it."""

from __future__ import annotations

import gzip
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.labels.captions import decode_message
from motif_jax.stages import annotate as stage

REPOSITORY = Path(__file__).resolve().parents[2]


def encode(text: str) -> np.ndarray:
    """A message as the game gives it: uint8 [256], padded with zeros."""
    out = np.zeros(256, np.uint8)
    out[: len(text)] = np.frombuffer(text.encode("latin-1"), np.uint8)
    return out


def write_dataset(folder: Path, pairs: Sequence[tuple[str, str]], seed: int = 0) -> Path:
    """Writes the published layout with sub-sequences of one step; status and numbers are drawn."""
    rng = np.random.default_rng(seed)
    count = len(pairs)
    for name in ("data", "info"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    messages = np.array([[encode(first), encode(second)] for first, second in pairs])[:, :, None]
    np.save(folder / "data" / "message.npy", messages)
    np.save(folder / "data" / "blstats.npy", rng.integers(0, 6, (count, 2, 1, 27)).astype(np.int32))
    np.save(folder / "data" / "rewards.npy", rng.integers(0, 3, (count, 2, 1)).astype(np.float32))
    np.save(folder / "info" / "score.npy", rng.integers(0, 100, (count, 2)))
    return folder


def expected(folder: Path, rule: Callable[[str, str], int]) -> np.ndarray:
    """The labels int8 [pairs] that a rule gives to a dataset of single messages."""
    messages = np.load(folder / "data" / "message.npy")[:, :, 0]
    texts = [(decode_message(first), decode_message(second)) for first, second in messages]
    return np.array([2 if a == b else rule(a, b) for a, b in texts], np.int8)


def conversations(path: Path) -> list[dict[str, Any]]:
    """The conversations of a file that annotators keep."""
    with gzip.open(path) as file:
        return [json.loads(line) for line in file]


def drawn_pairs(count: int, seed: int = 0, length: int = 40) -> list[tuple[str, str]]:
    """Pairs of messages that a lexicon has something to say about, with repeats and equal pairs among them."""
    rng = np.random.default_rng(seed)
    pool = [f"You kill the newt {n}!" for n in range(length // 2)] + [
        f"You see here a dagger {n}." for n in range(length)
    ]
    pool += [f"{n} gold pieces." for n in range(length // 2)] + ["", "It's a wall."]
    return [(pool[first], pool[second]) for first, second in rng.integers(0, len(pool), (count, 2))]


# A disk that takes this long for what it is asked to keep, however fast the machine's own is (in memory: not at all).
_SLOW_DISK = """
import os, time

keep = os.fsync
os.fsync = lambda descriptor: (time.sleep(0.004), keep(descriptor))[1]
"""


def on_a_slow_disk(folder: Path) -> dict[str, str]:
    """The environment of a program for which every answer that it writes takes 8 milliseconds at the least.

    So a signal meets it at work: with 1,000 questions, this process may wait for its turn for seconds before it sends one.
    """
    (folder / "slow_disk").mkdir()
    (folder / "slow_disk" / "sitecustomize.py").write_text(_SLOW_DISK)
    path = [str(folder / "slow_disk"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def command(dataset: Path, workdir: Path, store: Path, *more: str, python: str = sys.executable) -> list[str]:
    """The annotate stage's command line."""
    return [
        python,
        "-m",
        "motif_jax.launch",
        "--config=configs/annotate.py",
        f"--workdir={workdir}",
        f"--config.dataset_dir={dataset}",
        f"--config.store_dir={store}",
        *more,
    ]


def annotate(*arguments: Any, timeout: float = 500, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the stage to its end."""
    line = command(*arguments, **{key: options.pop(key) for key in ("python",) if key in options})
    return subprocess.run(
        line, cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout, check=False, **options
    )


def get_config() -> Any:
    """The config of configs/annotate.py."""
    return runpy.run_path(str(REPOSITORY / "configs" / "annotate.py"))["get_config"]()


def run_stage(dataset: Path, workdir: Path, store: Path, **values: Any) -> int:
    """Runs the stage in this process; keys of `values` are dotted with a double underscore."""
    config = get_config()
    config.dataset_dir, config.store_dir = str(dataset), str(store)
    config.update_from_flattened_dict({key.replace("__", "."): value for key, value in values.items()})
    stage.check(config, workdir)
    return stage.run(config, workdir)


def summary(workdir: Path) -> dict[str, Any]:
    """The summary of a run."""
    return json.loads((workdir / "summary.json").read_text())
