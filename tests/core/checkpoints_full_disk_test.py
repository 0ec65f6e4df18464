"""A checkpoint that a full disk or a kill cuts off while it is saved."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from motif_jax.core import checkpoints as checkpoints_module
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError
from tests.core.saved_checkpoints import PARAMS, two_steps


class DiskUsage(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


def fail_before_the_id(folder: Path, monkeypatch: pytest.MonkeyPatch, copy: Path) -> str:
    """Saves step 3 on a disk that is full when its id is written; copies what a kill would leave
    there.
    """

    def no_space(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with Checkpoints(folder) as checkpoints, monkeypatch.context() as patched:
        patched.setattr(checkpoints_module, "atomic_write_json", no_space)
        patched.setattr(shutil, "disk_usage", lambda _: DiskUsage(2_000_000, 765_433, 1_234_567))
        with pytest.raises(UserError) as error:
            checkpoints.save(3, {"params": PARAMS}, asynchronous=False)
        shutil.copytree(folder / ".saving", copy)
    return str(error.value)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_disk_is_an_error_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = two_steps(tmp_path / "c")

    message = fail_before_the_id(folder, monkeypatch, tmp_path / "killed")

    assert message == (
        f"{folder}: checkpoint 3 could not be saved: No space left on device (1.2 MB are free there); earlier ones "
        "are intact: remove the cause, then the same command resumes"
    )
    assert names_in(folder) == ["1", "2"]


def test_a_kill_before_the_id_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = two_steps(tmp_path / "c")
    fail_before_the_id(folder, monkeypatch, tmp_path / "killed")
    assert (tmp_path / "killed" / "3").is_dir()
    shutil.move(tmp_path / "killed", folder / ".saving")

    with Checkpoints(folder) as checkpoints:
        assert checkpoints.latest() == 2
        checkpoints.save(3, {"params": PARAMS}, asynchronous=False)
        assert checkpoints.latest() == 3

    assert names_in(folder) == ["1", "2", "3"]
