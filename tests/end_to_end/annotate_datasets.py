"""Small pairs datasets, and the annotate stage, for the tests beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.checked_lines import read_lines
from motif_jax.motif.annotation.captions import decode_message
from tests import reward_fixtures


def write_dataset(folder: Path, pairs: Sequence[tuple[str, str]], seed: int = 0) -> Path:
    """Writes the published layout with sub-sequences of one step; status and numbers are drawn."""
    rng = np.random.default_rng(seed)
    count = len(pairs)
    for name in ("data", "info"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    texts = b"".join(text.encode("latin-1").ljust(256, b"\0") for pair in pairs for text in pair)
    np.save(
        folder / "data" / "message.npy", np.frombuffer(texts, np.uint8).reshape(count, 2, 1, 256)
    )
    np.save(folder / "data" / "blstats.npy", rng.integers(0, 6, (count, 2, 1, 27)).astype(np.int32))
    np.save(folder / "data" / "rewards.npy", rng.integers(0, 3, (count, 2, 1)).astype(np.float32))
    np.save(folder / "info" / "score.npy", rng.integers(0, 100, (count, 2)))
    return folder


def labels(dataset: Path, name: str = "*") -> np.ndarray:
    """Those of an annotation, or of the only one."""
    (path,) = (dataset / "preference").glob(f"{name}.npy")
    return np.load(path)


def expected(folder: Path, rule: Callable[[str, str], int]) -> np.ndarray:
    """The labels int8 [pairs] that a rule gives to a dataset of single messages."""
    messages = np.load(folder / "data" / "message.npy")[:, :, 0]
    texts = [(decode_message(first), decode_message(second)) for first, second in messages]
    return np.array([2 if a == b else rule(a, b) for a, b in texts], np.int8)


def stored(store: Path) -> list[dict[str, Any]]:
    """The lines of an answer store, in their order; of several files one after the other."""
    return [value for path in sorted(store.glob("*.jsonl")) for _, value in read_lines(path)]


def drawn_pairs(count: int, seed: int = 0, length: int = 40) -> list[tuple[str, str]]:
    """Pairs of messages that a lexicon has something to say about, with repeats and equal pairs
    among them.
    """
    rng = np.random.default_rng(seed)
    pool = [f"You kill the newt {n}!" for n in range(length // 2)]
    pool += [f"You see here a dagger {n}." for n in range(length)]
    pool += [f"{n} gold pieces." for n in range(length // 2)] + ["", "It's a wall."]
    return [(pool[first], pool[second]) for first, second in rng.integers(0, len(pool), (count, 2))]


# A disk that takes this long for what it is asked to keep, however fast the machine's own is (in
# memory: not at all).
_SLOW_DISK = """
import os, time

keep = os.fsync
os.fsync = lambda descriptor: (time.sleep(0.004), keep(descriptor))[1]
"""


def on_a_slow_disk(folder: Path) -> dict[str, str]:
    """The environment of a program for which every answer that it writes takes 8 milliseconds at
    the least.

    So a signal meets it at work: with 1,000 questions, this process may wait for its turn for
    seconds before it sends one.
    """
    (folder / "slow_disk").mkdir()
    (folder / "slow_disk" / "sitecustomize.py").write_text(_SLOW_DISK)
    return {
        "PYTHONPATH": os.pathsep.join([str(folder / "slow_disk"), os.environ.get("PYTHONPATH", "")])
    }


def run_stage(dataset: Path, workdir: Path, store: Path, **values: Any) -> dict[str, Any]:
    """The summary of the stage in this process; keys of `values` are dotted with a double
    underscore.
    """
    options = {"dataset_dir": str(dataset), "store_dir": str(store), **values}
    dotted = {key.replace("__", "."): value for key, value in options.items()}
    return summary(reward_fixtures.run_stage("annotate", workdir, "", **dotted))


def summary(workdir: Path) -> dict[str, Any]:
    return json.loads((workdir / "summary.json").read_text())
