"""Saves the running episodes of a run between two updates, so that it resumes in the middle of
them: of a serial run, and of one on policy whose actors are rebuilt.

Episodes are stored as seeds and actions (`rl.actors.group`) and replayed. A resumed serial run ends
with the same bits as one that never stopped.
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
    """The state for a checkpoint while nothing plays.

    Args:
      finished: slots that the batcher has not received yet.

    Returns:
      JSON-able data, and arrays.
    """
    plain_sources = []
    arrays = {}
    for number, source in enumerate(sources):
        inference, recurrent_states = source.inference.state()
        plain_sources.append({"actors": source.actors.state(), "inference": inference})
        arrays[f"source_{number}"] = {
            # The whole block: rows of slots that are not full yet, and the remembered actions.
            "slots": source.actors.slots.dump(),
            **_named_leaves(recurrent_states),
        }
    plain = {
        "sources": plain_sources,
        "batcher": batcher.state(),
        "finished": [list(slot) for slot in finished],
    }
    return plain, arrays


def _named_leaves(trees: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> number -> non-empty leaf: a checkpoint holds neither empty arrays nor containers
    other than dictionaries.
    """
    named: dict[str, Any] = {}
    for name, tree in trees.items():
        leaves = {
            f"leaf_{i:03d}": leaf for i, leaf in enumerate(jax.tree.leaves(tree)) if leaf.size
        }
        if leaves:
            named[name] = leaves
    return named


def restore(
    plain: Mapping[str, Any],
    arrays: Mapping[str, Any],
    sources: Sequence[ActorSource],
    batcher: Batcher,
) -> list[Finished]:
    """Restores the output of `of`; returns the finished slots.

    Where the checkpoint has another layout of environments, it prints a warning, restores nothing
    and returns no slots.
    """
    # A block fits its own layout alone.
    layouts = [str(source.actors.config.layout()) for source in sources]
    if [state["actors"]["layout"] for state in plain["sources"]] != layouts:
        line = "the checkpoint has another layout of environments: they begin new episodes"
        print(line, file=sys.stderr, flush=True)
        return []
    for number, (source, state) in enumerate(zip(sources, plain["sources"], strict=True)):
        arrays_of_source = arrays[f"source_{number}"]
        source.actors.restore(state["actors"], np.asarray(arrays_of_source["slots"]))
        inference = dict(state["inference"])
        # Groups that begin a new slot are not those that were held.
        if not source.actors.resumes_in_slot:
            inference["held"] = []
        # A network without a memory has no leaves, and so no entries.
        recurrent_states = {name: arrays_of_source.get(name, {}) for name in ("table", "states")}
        source.inference.restore(inference, recurrent_states)
    batcher.restore(plain["batcher"])
    return [Finished(*slot) for slot in plain["finished"]]
