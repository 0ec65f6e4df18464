"""Orbax checkpoints: saved in the background, the last few and the best kept, restored by item."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from motif_jax.support.errors import UserError

# Stands in an abstract tree for an item that was given as plain JSON-able data.
JSON = "json"
# Stands there for an item that is taken as it was saved, whatever it is.
ANY = "any"
# Begins the name of a checkpoint that is being removed.
_REMOVED = ".removed-"

logging.getLogger("absl").addFilter(
    lambda record: "orbax" not in record.pathname or record.levelno > logging.INFO
)


class Checkpoints:
    """The checkpoints of one run, by step.

    Every item of a checkpoint is a pytree of arrays, or plain JSON-able data. In a run of several processes
    all of them call `save` with the same values, and Orbax writes them once.

    Args:
      folder: where the checkpoints lie, one folder a step.
      keep: how many of the newest stay; None keeps all.
      keep_best: name of a metric whose best checkpoint stays as well.
      best_mode: 'max' or 'min'.
      read_only: never writes, removes or creates anything; the folder may belong to a running training.

    Raises:
      UserError: `read_only` and there is no such folder.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep: int | None = 5,
        keep_best: str | None = None,
        best_mode: str = "max",
        read_only: bool = False,
    ) -> None:
        self._folder = Path(folder).absolute()
        self._read_only = read_only
        if read_only and not self._folder.is_dir():
            raise UserError(f"{folder} does not exist: no checkpoint was saved there")
        self._keep = keep
        self._best_metric, self._best_sign = keep_best, 1.0 if best_mode == "max" else -1.0
        # Orbax deletes file by file: killed at it, it leaves a part of a checkpoint that looks like one. See `_prune`.
        self._checkpointer = ocp.training.Checkpointer(
            self._folder,
            preservation_policy=ocp.training.preservation_policies.PreserveAll(),
            cleanup_tmp_directories=not read_only,
        )
        self._pending: Any = None
        if not read_only:
            self._remove_leftovers()
        # What `save` leaves alone. Not the folder's look at that moment: processes may see it differently, and all of
        # them have to take part in a save, or none.
        self._saved = set(self.steps())

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _score(self, metrics: Any) -> float:
        value = (metrics or {}).get(self._best_metric)
        return -float("inf") if value is None else self._best_sign * float(value)

    def save(
        self,
        step: int,
        items: Mapping[str, Any],
        metrics: Mapping[str, float] | None = None,
        asynchronous: bool = True,
    ) -> None:
        """Saves `items` as checkpoint `step`; one that was there at the beginning, or was saved since, is left as it is.

        The arrays are copied to the host before this returns, so the caller may donate or change them; the
        writing goes on in the background. An earlier save still under way is waited for.

        Raises:
          Exception: whatever went wrong in an earlier background save.
        """
        self.wait()
        if step in self._saved:
            return
        self._saved.add(step)
        packed = {name: _pack(item) for name, item in items.items()}
        numbers = {name: float(value) for name, value in (metrics or {}).items()}
        self._pending = self._checkpointer.save_checkpointables_async(
            int(step), packed, force=True, metrics=numbers
        )
        if not asynchronous:
            self.wait()

    def wait(self) -> None:
        """Returns when everything that was saved lies on the disk; raises what went wrong with it."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
            self._prune()

    def _prune(self) -> None:
        """Removes what is neither among the newest nor the best; a rename first, so that none is there in part."""
        if self._keep is None or jax.process_index() != 0:
            return
        steps = self.steps()
        kept = {*steps[-self._keep :], self.best() if self._best_metric is not None else None}
        for step in steps:
            if step not in kept:
                os.rename(self._folder / str(step), self._folder / f"{_REMOVED}{step}")
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        if jax.process_index() == 0:
            for path in self._folder.glob(f"{_REMOVED}*"):
                shutil.rmtree(path)

    def steps(self) -> list[int]:
        """The steps of all complete checkpoints, ascending."""
        if self._read_only:
            self._checkpointer.reload()
        known = sorted(int(checkpoint.step) for checkpoint in self._checkpointer.checkpoints)
        # Orbax does not know of those that were pruned.
        return [step for step in known if (self._folder / str(step)).is_dir()]

    def latest(self) -> int | None:
        """The newest step, None if there is none."""
        steps = self.steps()
        return steps[-1] if steps else None

    def metrics(self, step: int) -> dict[str, float]:
        """The metrics that were saved with `step`."""
        for checkpoint in self._checkpointer.checkpoints:
            if checkpoint.step == step:
                return dict(checkpoint.metrics or {})
        raise UserError(f"{self._folder} has no checkpoint {step}: it has {self.steps() or 'none'}")

    def best(self) -> int | None:
        """The step with the best value of `keep_best` (the newest of equals), None if none has one."""
        scored = [(self._score(self.metrics(step)), step) for step in self.steps()]
        scored = [pair for pair in scored if pair[0] > -float("inf")]
        return max(scored)[1] if scored else None

    def restore(self, step: int | None, abstract: Mapping[str, Any]) -> dict[str, Any]:
        """Reads the items named in `abstract` from checkpoint `step` (None: the newest).

        Args:
          step: the checkpoint.
          abstract: for each item a tree of arrays or `jax.ShapeDtypeStruct` with the shapes and dtypes that
            are wanted, or `JSON`, or `ANY`.

        Returns:
          The items: trees of the same structure with numpy arrays, or the JSON data.

        Raises:
          UserError: there is no such checkpoint, or it holds other names, shapes or dtypes; they are named.
        """
        step = self.latest() if step is None else step
        if step is None or step not in self.steps():
            raise UserError(f"{self._folder} has no checkpoint {step}: it has {self.steps() or 'none'}")
        self._refuse_other_shapes(step, abstract)
        wanted = {
            name: None if isinstance(item, str) else _as_host_arrays(item) for name, item in abstract.items()
        }
        loaded = self._checkpointer.load_checkpointables(step, wanted)
        return {name: _unpack(loaded[name], item) for name, item in abstract.items()}

    @property
    def folder(self) -> Path:
        """Where they lie, absolute."""
        return self._folder

    def items(self, step: int) -> list[str]:
        """Names of the items of checkpoint `step`."""
        return sorted(self._checkpointer.checkpointables_metadata(step).metadata)

    def _refuse_other_shapes(self, step: int, abstract: Mapping[str, Any]) -> None:
        saved = self._checkpointer.checkpointables_metadata(step).metadata
        for name, item in abstract.items():
            if name not in saved:
                raise UserError(
                    f"{self._folder} checkpoint {step} has no {name}: it has {', '.join(sorted(saved))}"
                )
            if isinstance(item, str):
                continue
            there, here = _describe(saved[name]), _describe(item)
            different = [
                f"{key}: {there.get(key, 'absent')} saved, {here.get(key, 'absent')} wanted"
                for key in sorted({*there, *here})
                if there.get(key) != here.get(key)
            ]
            if different:
                more = f" and {len(different) - 3} more" if len(different) > 3 else ""
                raise UserError(
                    f"{self._folder} checkpoint {step} does not fit this config: {name} {'; '.join(different[:3])}{more}"
                )

    def close(self) -> None:
        """Waits for what is under way and closes."""
        self.wait()
        self._checkpointer.close()


def _pack(item: Any) -> Any:
    leaves = jax.tree.leaves(item)
    if leaves and all(isinstance(leaf, np.ndarray | np.generic | jax.Array) for leaf in leaves):
        return jax.tree.map(np.array, jax.device_get(item))
    # As bytes in an array: Orbax keeps arrays, and a tree of nothing but a string makes it complain.
    return {JSON: np.frombuffer(json.dumps(item).encode(), np.uint8)}


def _unpack(loaded: Any, item: Any) -> Any:
    if item is ANY and set(loaded) != {JSON}:
        return jax.tree.map(np.asarray, loaded)
    return json.loads(np.asarray(loaded[JSON]).tobytes()) if isinstance(item, str) else loaded


def _as_host_arrays(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), tree)


def _describe(tree: Any) -> dict[str, str]:
    """Maps 'a/b/0' to 'float32[3,4]' for every leaf."""
    described = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            name = "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
            described[name] = f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
    return described
