"""Orbax checkpoints: saved in the background, the last few and the best kept, checked and restored
by item.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp

from motif_jax.core.capacity import available_memory
from motif_jax.core.errors import UserError, first_line
from motif_jax.core.files import NO_ROOM, atomic_write_json, read_json, sync
from motif_jax.core.locks import GONE

# Stands in an abstract tree for an item that was saved as plain JSON-able data.
JSON = "json"
# Stands in an abstract tree for an item that is restored as it was saved.
ANY = "any"
# The file of a checkpoint with its random id.
ID = "id.json"
_STAGING = ".saving"
# Prefix of the name of a checkpoint that is being removed.
_REMOVED = ".removed-"
_METRICS = "metrics/metrics"
# From this size on each array has files of its own: Orbax's shared files hold all that is written
# in memory.
LARGE = 1 << 30
# A copy of the arrays may take this share of the memory that is left; larger ones are written
# before `save` returns.
_COPY_SHARE = 0.25
# Longest time that a host waits to see what the first one has written.
_SEEN_SECONDS = 600.0


class Checkpoints(contextlib.AbstractContextManager["Checkpoints"]):
    """The checkpoints of one run, by step; an item is a pytree of arrays, or JSON-able data.

    All processes of a run call `save` with the same values. Orbax writes them once into `.saving/`,
    a random id is added (`id.json`), and a rename gives the folder its number. So a numbered folder
    is whole; the next writer removes what a kill left.

    The newest `keep` stay (None: all), and the one with the best metric `keep_best`, by `best_mode`
    'max' or 'min'. Of a run that also saves by the clock, the newest `keep` milestones stay, too:
    the first checkpoint at or after each multiple of `milestone_steps`. With `read_only` nothing is
    written or removed: the folder may belong to a running training.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep: int | None = 5,
        keep_best: str | None = None,
        best_mode: str = "max",
        read_only: bool = False,
        milestone_steps: int | None = None,
    ) -> None:
        self._folder = Path(folder).absolute()
        self._keep = keep
        self._milestone_steps = milestone_steps
        self._best_metric = keep_best
        self._best_sign = 1.0 if best_mode == "max" else -1.0
        self._checkpointer: Any = None
        if not read_only:
            self._folder.mkdir(parents=True, exist_ok=True)
            # What a killed save has left, whole or in part: none of it has its number yet.
            staged = (self._folder / _STAGING).glob("[0-9]*")
            self._remove_leftovers([*staged, *self._folder.glob("*.orbax-checkpoint-tmp*")])
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._pending: tuple[int, Future[None]] | None = None
        self._failed = False
        # Steps that `save` skips. They are read once: either all processes take part in a save or
        # none, and each may see the folder change at another time.
        self._existing = set(self.steps())
        self._saved: set[int] = set()

    def _open_for_writing(self, size: int) -> Any:
        context = ocp.Context()
        context.memory.deepcopy_host_arrays = False  # they are copies, or `save` waits
        context.array.saving.use_ocdbt = size < LARGE
        # Orbax would delete file by file, and a kill would leave a part that looks whole.
        return ocp.training.Checkpointer(
            self._folder / _STAGING,
            preservation_policy=ocp.training.preservation_policies.PreserveAll(),
            cleanup_tmp_directories=True,
            context=context,
        )

    def __exit__(self, *exception: object) -> None:
        self.close()

    def save(
        self,
        step: int,
        items: Mapping[str, Any],
        metrics: Mapping[str, float] | None = None,
        asynchronous: bool = True,
    ) -> None:
        """Saves `items` as checkpoint `step` in the background, once an earlier save has ended; an
        existing checkpoint stays.

        The arrays are copied to the host before this returns, so the caller may donate or change
        them. Where memory is short, nothing is copied and this returns when all is written. Raises
        UserError: this or an earlier background save failed, as where the disk is full.
        """
        self.wait()
        if step in self._existing or step in self._saved:
            return
        self._saved.add(step)
        if not self._folder.is_dir():
            raise UserError(f"{self._folder} was removed {GONE}")

        size = sum(leaf.nbytes for leaf in jax.tree.leaves(dict(items)) if hasattr(leaf, "nbytes"))
        memory = available_memory()
        copies = memory is None or size < _COPY_SHARE * memory
        packed = {name: _pack(item, copies) for name, item in items.items()}
        numbers = {name: float(value) for name, value in (metrics or {}).items()}

        try:
            if self._checkpointer is None:
                self._checkpointer = self._open_for_writing(size)
            response = self._checkpointer.save_checkpointables_async(
                int(step), packed, force=True, metrics=numbers
            )
        except Exception as error:
            raise self._unsaved(step, error) from error
        self._pending = (step, self._thread.submit(self._finish, response, step))
        del packed  # else the copies would stay in memory until this returns
        if not (asynchronous and copies):
            self.wait()

    def _finish(self, response: Any, step: int) -> None:
        """Adds the id when all is written, and gives the checkpoint its number."""
        # In the background thread; `wait` raises its errors in the caller's.
        response.result()
        staged = self._folder / _STAGING / str(step)
        target = self._folder / str(step)
        if jax.process_index() == 0:
            atomic_write_json(staged / ID, {"id": secrets.token_hex(16)})
            # A machine that dies after the rename must not leave names of empty files.
            for path in staged.rglob("*"):
                sync(path)
            os.rename(staged, target)
            sync(self._folder)
        deadline = time.monotonic() + _SEEN_SECONDS
        while not target.exists():  # on the other hosts
            if time.monotonic() > deadline:
                raise TimeoutError(f"{target} is not seen here within {_SEEN_SECONDS:.0f} s")
            time.sleep(0.05)

    def wait(self) -> None:
        """Waits for the save under way. Raises UserError: it failed."""
        if self._pending is None:
            return
        step, future = self._pending
        self._pending = None
        try:
            future.result()
        except Exception as error:
            raise self._unsaved(step, error) from error
        self._prune()

    def _unsaved(self, step: int, error: Exception) -> UserError:
        self._failed = True
        return UserError(
            f"{self._folder}: checkpoint {step} could not be saved: {_write_error(error, self._folder)}; earlier ones are "
            "intact: remove the cause, then the same command resumes"
        )

    def _prune(self) -> None:
        """Removes all but the newest, the milestones and the best, each by a rename first, so that
        a kill leaves no part.
        """
        if self._keep is None or jax.process_index() != 0:
            return
        steps = self.steps()
        stay: set[int | None] = {*steps[-self._keep :], *self._milestones(steps)[-self._keep :]}
        if self._best_metric is not None:
            stay.add(self.best())
        for step in steps:
            if step not in stay:
                _set_aside(self._folder / str(step))
        self._remove_leftovers()

    def _milestones(self, steps: Sequence[int]) -> list[int]:
        """The first of `steps`, ascending, at or after each multiple of `milestone_steps` that they
        pass.
        """
        every = self._milestone_steps
        if every is None:
            return []
        return [step for before, step in pairwise([0, *steps]) if step // every > before // every]

    def _remove_leftovers(self, others: Iterable[Path] = ()) -> None:
        if jax.process_index() == 0:
            _remove_leftovers(self._folder, others)

    def steps(self) -> list[int]:
        """The steps of all checkpoints, ascending."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def latest(self) -> int | None:
        """The newest step, None without checkpoints."""
        return max(self.steps(), default=None)

    def metrics(self, step: int) -> dict[str, float]:
        """The metrics that were saved with `step`. Raises UserError: there is no such
        checkpoint.
        """
        return self._metrics(self.require_saved(step))

    def _metrics(self, step: int) -> dict[str, float]:
        path = self._folder / str(step) / _METRICS
        return read_json(path, "choose another checkpoint") if path.exists() else {}

    def best(self) -> int | None:
        """The step with the best value of `keep_best` (the newest of equals), None if none has
        one.
        """
        scores: list[tuple[float, int]] = []
        for step in self.steps():
            value = self._metrics(step).get(self._best_metric or "")
            if value is None:
                continue
            score = self._best_sign * float(value)
            if score > -math.inf:  # False for NaN
                scores.append((score, step))
        return max(scores)[1] if scores else None

    def require_saved(self, step: int | None) -> int:
        """Returns `step`. Raises UserError where no such checkpoint was saved."""
        steps = self.steps()
        if step is None or step not in steps:
            raise UserError(f"{self._folder} has no checkpoint {step}: it has {steps or 'none'}")
        return step

    def restore(self, step: int | None, abstract: Mapping[str, Any]) -> dict[str, Any]:
        """Reads items of checkpoint `step` (None: the newest), as numpy arrays or JSON data.

        Args:
          abstract: for each item a tree of arrays or `jax.ShapeDtypeStruct` with the expected
            shapes and dtypes, or `JSON`, or `ANY`.

        Raises:
          UserError: there is no such checkpoint, or it holds other names, shapes or dtypes; they
            are named.
        """
        step = self.require_saved(self.latest() if step is None else step)
        self._refuse_other_shapes(step, abstract)
        templates = {
            name: None if isinstance(item, str) else _as_host_arrays(item)
            for name, item in abstract.items()
        }
        loaded = ocp.load_checkpointables(self._folder / str(step), templates)
        return {name: _unpack(loaded[name], item) for name, item in abstract.items()}

    def _metadata(self, step: int) -> Mapping[str, Any]:
        return ocp.checkpointables_metadata(self._folder / str(step)).metadata

    @property
    def folder(self) -> Path:
        return self._folder

    def items(self, step: int) -> list[str]:
        """Names of the items of checkpoint `step`. Raises UserError: there is no such
        checkpoint.
        """
        return sorted(self._metadata(self.require_saved(step)))

    def _refuse_other_shapes(self, step: int, abstract: Mapping[str, Any]) -> None:
        """Raises UserError unless checkpoint `step` has the items of `abstract`, with their shapes
        and dtypes.
        """
        saved = self._metadata(step)
        for name, item in abstract.items():
            if isinstance(item, str):
                continue
            actual = _describe(saved[name])
            expected = _describe(item)
            different = [
                f"{key}: {actual.get(key, 'absent')} saved, {expected.get(key, 'absent')} wanted"
                for key in sorted({*actual, *expected})
                if actual.get(key) != expected.get(key)
            ]
            if different:
                more = f" and {len(different) - 3} more" if len(different) > 3 else ""
                raise UserError(
                    f"{self._folder} checkpoint {step} does not fit this config: {name} {'; '.join(different[:3])}{more}"
                )

    def close(self) -> None:
        try:
            self.wait()
        finally:
            self._thread.shutdown()
            if self._checkpointer is not None:
                # Orbax raises an error of its threads more than once.
                with contextlib.suppress(Exception) if self._failed else contextlib.nullcontext():
                    self._checkpointer.close()
                if jax.process_index() == 0:  # after a failure it may hold a part
                    shutil.rmtree(self._folder / _STAGING, ignore_errors=True)


def read_id(folder: str | os.PathLike[str], step: int) -> str | None:
    """The random id of checkpoint `step` in a folder of checkpoints, None where there is no such
    checkpoint.

    Trainings that were given the same command again have other ids, copies of a folder the same.
    """
    path = Path(folder) / str(step) / ID
    if not path.parent.is_dir():
        return None
    saved_id: str = read_json(path, "choose another checkpoint", keys=["id"])["id"]
    return saved_id


@functools.cache
def _warn_once(line: str) -> None:
    """Prints a warning; cached, so once in a process."""
    print(f"warning: {line}", file=sys.stderr, flush=True)


def _write_error(error: BaseException, folder: Path) -> str:
    """Why a write failed, in a few words: Orbax's error of a full disk has pages."""
    # Errors that were raised in Orbax's compiled parts have no errno, only the system's words for
    # it.
    number = next((number for number in NO_ROOM if os.strerror(number) in str(error)), None)
    if number is None:
        return first_line(error)
    reason = os.strerror(number)
    if number == errno.ENOSPC:
        reason += f" ({shutil.disk_usage(folder).free / 1e6:,.1f} MB are free there)"
    return reason


def _set_aside(checkpoint: Path) -> None:
    """Renames a checkpoint's folder, so that a kill leaves no part that looks whole;
    `_remove_leftovers` removes it.
    """
    os.rename(checkpoint, checkpoint.with_name(_set_aside_name(checkpoint)))


def _remove_leftovers(folder: Path, others: Iterable[Path]) -> None:
    """Removes what was set aside in `folder`, also by a process that was killed, and `others`.

    What cannot be removed stays set aside until the next call, and a line says so: NFS keeps a
    folder while somebody has one of its files open.
    """
    for path in others:
        # Out of the way of a save of the same step, where it cannot be removed.
        os.rename(path, folder / _set_aside_name(path))
    for path in folder.glob(f"{_REMOVED}*"):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            _warn_once(
                f"{path} cannot be removed yet ({error.strerror or error}): a later save or start tries it again"
            )


def _set_aside_name(checkpoint: Path) -> str:
    # An earlier checkpoint of this number may still lie there.
    return f"{_REMOVED}{checkpoint.name}-{secrets.token_hex(4)}"


def _pack(item: Any, copy: bool = True) -> Any:
    """A tree of arrays as whole numpy arrays on this host; anything else as JSON in an array of
    bytes.

    Without `copy` an array may share memory with the one of a device.
    """
    leaves = jax.tree.leaves(item)
    if leaves and all(isinstance(leaf, np.ndarray | np.generic | jax.Array) for leaf in leaves):
        # Gathering is collective: all hosts pack, also those that write nothing.
        arrays = jax.device_get(jax.tree.map(_gathered, item))
        return jax.tree.map(np.array if copy else np.asarray, arrays)
    # Bytes in an array: Orbax stores arrays and rejects a tree of one string.
    return {JSON: np.frombuffer(json.dumps(item).encode(), np.uint8)}


def _gathered(leaf: Any) -> Any:
    """Gathers an array that is split over hosts; returns any other leaf unchanged."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return leaf
    return multihost_utils.process_allgather(leaf, tiled=True)


def _unpack(loaded: Any, item: Any) -> Any:
    """Reverses `_pack` on an item that Orbax has loaded; `item` is its entry in the abstract
    tree.
    """
    # A tree whose one name is `JSON` was made of plain data.
    if item is ANY and set(loaded) != {JSON}:
        return jax.tree.map(np.asarray, loaded)
    return json.loads(np.asarray(loaded[JSON]).tobytes()) if isinstance(item, str) else loaded


def _as_host_arrays(tree: Any) -> Any:
    """Numpy arrays with a tree's shapes and dtypes, which make Orbax restore numpy arrays."""
    return jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), tree)


def _describe(tree: Any) -> dict[str, str]:
    """Maps 'a/b/0' to 'float32[3,4]' for every leaf."""
    described: dict[str, str] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            described[name] = f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
    return described
