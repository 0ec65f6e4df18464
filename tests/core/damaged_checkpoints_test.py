"""Damaged checkpoints are detected, named and passed over."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.checkpoint_items import JSON
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError
from tests.core.saved_checkpoints import PARAMS, two_steps


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1 << (len(data) % 8)
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink], ids=["flip", "cut", "removal"])
def test_damage_to_any_file_of_a_checkpoint_is_detected(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    folder = two_steps(tmp_path / "c")
    files = [path for path in (folder / "2").rglob("*") if path.is_file()]
    assert len(files) > 15
    for path in files:
        content = path.read_bytes()
        harm(path)

        with Checkpoints(folder, keep_best="return", read_only=True) as reader:
            assert (reader.latest(), reader.best()) == (1, 1), path
            with pytest.raises(UserError, match=r"c/2 is damaged .*choose another"):
                reader.restore(2, {"counters": JSON})
        path.write_bytes(content)


def test_a_file_that_was_cut_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = two_steps(tmp_path / "c")
    for path in [path for path in (folder / "2").rglob("*") if path.is_file()]:
        content = path.read_bytes()
        cut(path)

        with Checkpoints(folder, read_only=True) as reader:
            assert reader.latest() == 1

        assert path.relative_to(folder / "2").as_posix() in capfd.readouterr().err
        path.write_bytes(content)


def test_files_that_were_written_back_are_intact(tmp_path: Path) -> None:
    folder = two_steps(tmp_path / "c")
    for path in [path for path in (folder / "2").rglob("*") if path.is_file()]:
        path.write_bytes(path.read_bytes())

    with Checkpoints(folder, keep_best="return", read_only=True) as reader:
        assert (reader.latest(), reader.best()) == (2, 2)
        assert reader.restore(None, {"counters": JSON}) == {"counters": {"steps": 2}}


@pytest.fixture
def damaged_second(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    """A folder of two checkpoints; the largest file of the second is damaged."""
    folder = two_steps(tmp_path / "c")
    files = [path for path in (folder / "2").rglob("*") if path.is_file()]
    flip(max(files, key=lambda path: path.stat().st_size))
    capfd.readouterr()
    return folder


def test_a_damaged_checkpoint_is_named_once(
    damaged_second: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Checkpoints(damaged_second, keep=1) as checkpoints:
        assert checkpoints.latest() == 1
        assert checkpoints.latest() == 1

    (printed,) = capfd.readouterr().err.splitlines()
    assert f"{damaged_second}/2 is damaged" in printed


def test_a_damaged_checkpoint_is_saved_again(damaged_second: Path) -> None:
    with Checkpoints(damaged_second, keep=1) as checkpoints:
        assert checkpoints.latest() == 1

        checkpoints.save(2, {"params": {"a": np.ones(2)}}, asynchronous=False)

        assert checkpoints.latest() == 2
        assert checkpoints.restore(2, {"params": {"a": np.zeros(2)}})["params"]["a"].sum() == 2
    assert os.listdir(damaged_second) == ["2"]


def test_an_intact_checkpoint_is_not_saved_again(damaged_second: Path) -> None:
    with Checkpoints(damaged_second, keep=1) as checkpoints:
        assert checkpoints.latest() == 1

        checkpoints.save(1, {"params": {"a": np.ones(2)}}, asynchronous=False)

        assert checkpoints.restore(1, {"counters": JSON}) == {"counters": {"steps": 1}}


def test_damaged_ones_never_push_out_what_is_intact(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with Checkpoints(folder, keep=3) as checkpoints:
        for step in (1, 10, 20):
            checkpoints.save(step, {"params": PARAMS})
    for step in (10, 20):
        (folder / str(step) / "params" / "_METADATA").write_bytes(b"")
    for step in (2, 3):  # a run goes back behind them
        with Checkpoints(folder, keep=1) as checkpoints:
            assert checkpoints.latest() == step - 1
            checkpoints.save(step, {"params": PARAMS}, asynchronous=False)
            assert checkpoints.latest() == step


@pytest.fixture
def all_damaged(tmp_path: Path) -> Path:
    """A folder whose two checkpoints have lost a file."""
    folder = two_steps(tmp_path / "c")
    for step in (1, 2):
        (folder / str(step) / "params" / "_METADATA").unlink()
    return folder


def test_nothing_intact_is_an_error_with_the_remedy(all_damaged: Path) -> None:
    line = r"no intact checkpoint of \[1, 2\]: restore one from a copy, or remove the folder and train again$"

    with (
        Checkpoints(all_damaged) as checkpoints,
        pytest.raises(UserError, match=f"^{all_damaged} has {line}"),
    ):
        checkpoints.latest()


def test_nothing_intact_is_none_for_who_can_do_without(all_damaged: Path) -> None:
    with Checkpoints(all_damaged) as checkpoints:
        assert checkpoints.latest(all_damaged_is_none=True) is None
