"""Saves the running episodes of a serial run between two updates, so that it resumes in the middle of them.

Episodes are stored as seeds and actions (`rl.actors.group`) and replayed. A resumed serial run ends with the same bits as one that
never stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from motif_jax.rl.batcher import ActorSource, Batcher, Finished

ITEM = "play"


def of(
    sources: Sequence[ActorSource], batcher: Batcher, finished: Sequence[Finished]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state for a checkpoint while nothing plays: plain data, and arrays; the batcher has not received `finished`."""
    plain, arrays = [], {}
    for number, source in enumerate(sources):
        inference, held = source.inference.state()
        plain.append({"actors": source.actors.state(), "inference": inference})
        arrays[f"source_{number}"] = {"slots": source.actors.slots.dump(), **_kept(held)}
    found = {"sources": plain, "batcher": batcher.state(), "finished": [list(each) for each in finished]}
    return found, arrays


def _kept(held: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> number -> non-empty leaf: a checkpoint holds neither empty arrays nor other containers."""
    found: dict[str, Any] = {}
    for name, tree in held.items():
        leaves = {f"leaf_{i:03d}": leaf for i, leaf in enumerate(jax.tree.leaves(tree)) if leaf.size}
        found |= {name: leaves} if leaves else {}
    return found


def restore(
    plain: Mapping[str, Any], arrays: Mapping[str, Any], sources: Sequence[ActorSource], batcher: Batcher
) -> list[Finished]:
    """Restores the output of `of`; returns the finished slots, none (with a warning) where environments were laid out anew."""
    layouts = [str(source.actors.config.layout()) for source in sources]
    if [each["actors"]["layout"] for each in plain["sources"]] != layouts:
        said = "the checkpoint has another layout of environments: they begin new episodes"
        print(said, file=sys.stderr, flush=True)
        return []
    for number, (source, state) in enumerate(zip(sources, plain["sources"], strict=True)):
        kept = arrays[f"source_{number}"]
        source.actors.restore(state["actors"], np.asarray(kept["slots"]))
        inference = state["inference"] | ({} if source.actors.keeps_places else {"held": []})
        source.inference.restore(inference, {name: kept.get(name, {}) for name in ("table", "states")})
    batcher.restore(plain["batcher"])
    return [Finished(*each) for each in plain["finished"]]
