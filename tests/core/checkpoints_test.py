"""Real Orbax checkpoints: what is kept, what is restored, and what is refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.core.checkpoints import JSON, Checkpoints, read_id
from motif_jax.core.errors import UserError
from tests.core.saved_checkpoints import PARAMS
from tests.processes import wait_until


@pytest.fixture
def five_steps(tmp_path: Path) -> Path:
    """A folder of a run that saved steps 0 to 4 and keeps two; step 1 has the best return."""
    folder = tmp_path / "c"
    with Checkpoints(folder, keep=2, keep_best="return") as checkpoints:
        for step in range(5):
            scaled = jax.tree.map(lambda leaf, step=step: leaf * step, PARAMS)
            items = {"params": scaled, "counters": {"steps": step, "note": None}}
            checkpoints.save(step, items, metrics={"return": 10.0 if step == 1 else step})
    return folder


def test_the_newest_two_and_the_best_are_kept(five_steps: Path) -> None:
    with Checkpoints(five_steps, keep=2, keep_best="return") as checkpoints:
        assert checkpoints.steps() == [1, 3, 4]
        assert checkpoints.latest() == 4
        assert checkpoints.best() == 1
        assert checkpoints.metrics(1) == {"return": 10.0}


def test_the_best_may_be_the_one_of_the_least_number(five_steps: Path) -> None:
    with Checkpoints(
        five_steps, read_only=True, keep_best="return", best_mode="min"
    ) as checkpoints:
        assert checkpoints.best() == 3


def test_items_are_restored_by_name_as_they_were_saved(five_steps: Path) -> None:
    with Checkpoints(five_steps, read_only=True) as checkpoints:
        items = checkpoints.restore(3, {"params": jax.eval_shape(lambda: PARAMS), "counters": JSON})

    assert items["counters"] == {"steps": 3, "note": None}
    np.testing.assert_array_equal(
        items["params"]["dense"]["kernel"], 3 * np.arange(6.0).reshape(2, 3)
    )
    assert items["params"]["bias"].dtype == jnp.bfloat16


def test_an_optimisers_state_keeps_its_structure(tmp_path: Path) -> None:
    optimizer = optax.chain(optax.clip_by_global_norm(4.0), optax.adam(1e-3)).init(PARAMS)

    with Checkpoints(tmp_path / "c") as checkpoints:
        checkpoints.save(1, {"optimizer": optimizer}, asynchronous=False)
        restored = checkpoints.restore(None, {"optimizer": optimizer})["optimizer"]

    assert jax.tree.structure(restored) == jax.tree.structure(optimizer)


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All arrays are large, and there is no memory for copies of them."""
    monkeypatch.setattr("motif_jax.core.checkpoints.LARGE", 0)
    monkeypatch.setattr("motif_jax.core.checkpoints.available_memory", lambda: 1)


@pytest.mark.usefixtures("everything_is_large")
def test_a_large_state_is_written_before_save_returns(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "c") as checkpoints:
        checkpoints.save(1, {"params": PARAMS})

        assert checkpoints.steps() == [1]


@pytest.mark.usefixtures("everything_is_large")
def test_arrays_of_a_large_state_have_files_of_their_own(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "c") as checkpoints:
        checkpoints.save(1, {"params": PARAMS})

    assert not list((tmp_path / "c/1").rglob("*ocdbt*"))


def test_a_large_state_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("motif_jax.core.checkpoints.LARGE", 0)
        with Checkpoints(tmp_path / "c") as checkpoints:
            for step in (1, 2):
                checkpoints.save(step, {"params": PARAMS, "counters": {"steps": step}})

    with Checkpoints(tmp_path / "c", read_only=True) as checkpoints:
        restored = checkpoints.restore(None, {"params": PARAMS, "counters": JSON})
    assert restored["counters"] == {"steps": 2}
    jax.tree.map(np.testing.assert_array_equal, restored["params"], PARAMS)


@pytest.fixture
def step_seven(tmp_path: Path) -> Iterator[Checkpoints]:
    """The checkpoints of a run that has saved step 7 with parameters alone."""
    with Checkpoints(tmp_path / "c") as checkpoints:
        checkpoints.save(7, {"params": PARAMS}, asynchronous=False)
        yield checkpoints


KERNEL = "float32[2, 3]"
OTHER_SHAPE = {
    "dense": {"kernel": jax.device_put(np.zeros((2, 4), np.float32))},
    "bias": PARAMS["bias"],
}
RENAMED = {"a": PARAMS["dense"], "b": PARAMS["bias"], "c": jax.device_put(np.int8(1))}
ABSENT = f"a/kernel: absent saved, {KERNEL} wanted; b: absent saved, bfloat16[3] wanted; bias: bfloat16[3] saved, absent wanted"


@pytest.mark.parametrize(
    ("step", "items", "line"),
    [
        pytest.param(
            7,
            {"params": OTHER_SHAPE},
            f"checkpoint 7 does not fit this config: params dense/kernel: {KERNEL} saved, float32[2, 4] wanted",
            id="shape",
        ),
        pytest.param(
            7,
            {"params": RENAMED},
            f"checkpoint 7 does not fit this config: params {ABSENT} and 2 more",
            id="names",
        ),
        pytest.param(8, {"params": PARAMS}, "has no checkpoint 8: it has [7]", id="step"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named(
    step_seven: Checkpoints, step: int, items: dict[str, Any], line: str
) -> None:
    with pytest.raises(UserError) as error:
        step_seven.restore(step, items)

    assert str(error.value) == f"{step_seven.folder} {line}"


def test_a_checkpoint_keeps_its_id_in_a_copy(step_seven: Checkpoints, tmp_path: Path) -> None:
    shutil.copytree(step_seven.folder, tmp_path / "copy")

    assert read_id(tmp_path / "copy", 7) == read_id(step_seven.folder, 7)


def test_equal_checkpoints_of_two_trainings_have_two_ids(
    step_seven: Checkpoints, tmp_path: Path
) -> None:
    with Checkpoints(tmp_path / "again") as again:
        again.save(7, {"params": PARAMS}, asynchronous=False)

    assert read_id(again.folder, 7) != read_id(step_seven.folder, 7)
    assert read_id(again.folder, 8) is None


def test_modules_that_a_checkpoint_names_are_not_imported(
    step_seven: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("class Handler: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = step_seven.folder / "7/_CHECKPOINT_METADATA"
    handlers = {"params": "evil.Handler"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"item_handlers": handlers}))

    restored = step_seven.restore(7, {"params": PARAMS})

    jax.tree.map(np.testing.assert_array_equal, restored["params"], PARAMS)
    assert "evil" not in sys.modules


def test_a_checkpoint_names_its_items(step_seven: Checkpoints) -> None:
    assert step_seven.items(7) == ["params"]


def test_a_checkpoint_without_metrics_is_not_the_best(step_seven: Checkpoints) -> None:
    assert step_seven.metrics(7) == {}
    assert step_seven.best() is None


def test_a_folder_that_was_removed_while_in_use_is_named(step_seven: Checkpoints) -> None:
    step_seven.save(8, {"params": PARAMS}, {"return": 2})
    step_seven.wait()
    shutil.rmtree(step_seven.folder)

    assert step_seven.steps() == []
    with pytest.raises(UserError, match=f"^{step_seven.folder} was removed while it was in use"):
        step_seven.save(9, {"params": PARAMS})


def test_a_folder_without_checkpoints_has_none_to_restore(tmp_path: Path) -> None:
    with (
        Checkpoints(tmp_path / "none", read_only=True) as checkpoints,
        pytest.raises(UserError, match=f"^{tmp_path}/none has no checkpoint None: it has none"),
    ):
        checkpoints.restore(None, {})
    assert not (tmp_path / "none").exists()


def test_a_reader_sees_new_checkpoints_and_removes_none(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "c", keep=1) as writer:
        writer.save(1, {"params": PARAMS}, asynchronous=False)
        with Checkpoints(tmp_path / "c", read_only=True) as reader:
            assert reader.steps() == [1]
            writer.save(2, {"params": PARAMS}, asynchronous=False)
            assert reader.steps() == [2]


@pytest.fixture
def cut_off_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was killed when one file of checkpoint 1, which step 2 replaces, was
    removed.
    """

    def interrupted(path: Path) -> None:
        next(file for file in path.rglob("*") if file.is_file()).unlink()
        raise KeyboardInterrupt

    with Checkpoints(tmp_path / "c", keep=1) as writer:
        writer.save(1, {"params": PARAMS}, asynchronous=False)
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.save(2, {"params": PARAMS}, asynchronous=False)
    return tmp_path / "c"


def test_a_reader_sees_no_part_of_a_cut_off_removal(cut_off_removal: Path) -> None:
    with Checkpoints(cut_off_removal, read_only=True) as reader:
        assert reader.steps() == [2]


def test_the_next_writer_ends_a_removal_that_was_cut_off(cut_off_removal: Path) -> None:
    with Checkpoints(cut_off_removal, keep=1) as writer:
        assert writer.steps() == [2]

    assert os.listdir(cut_off_removal) == ["2"]


def unremovable(path: Path, ignore_errors: bool = False) -> None:
    """`shutil.rmtree` of a folder of which another process has a file open, on NFS."""
    if not ignore_errors:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))


def test_a_part_that_cannot_be_removed_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "c/.saving/2"
    part.mkdir(parents=True)
    monkeypatch.setattr(shutil, "rmtree", unremovable)

    with Checkpoints(tmp_path / "c") as writer:
        writer.save(2, {"params": PARAMS}, asynchronous=False)
        assert writer.steps() == [2]


def test_a_removal_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", unremovable)
        with Checkpoints(tmp_path / "c", keep=1) as writer:
            for step in (1, 2, 3):
                writer.save(step, {"params": PARAMS}, asynchronous=False)
        with Checkpoints(tmp_path / "c", keep=1) as writer:
            assert writer.steps() == [3]
    warnings = capfd.readouterr().err.splitlines()
    assert len(warnings) == 2
    assert "cannot be removed yet (Directory not empty)" in warnings[0]

    with Checkpoints(tmp_path / "c", keep=1):
        assert not list((tmp_path / "c").glob(".removed-*"))


WRITER = """
import sys, numpy as np
from motif_jax.core.checkpoints import Checkpoints
with Checkpoints(sys.argv[1], keep=3) as checkpoints:
    step = (checkpoints.latest() or 0)
    while True:
        step += 1
        checkpoints.save(step, {"params": {"a": np.full((400, 400), step, np.float32)}})
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_intact_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    newest = 0
    for round_number in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(folder)]) as writer:

            def ready() -> bool:
                names = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]
                return writer.poll() is not None or max(names, default=0) >= newest + 3  # noqa: B023

            try:
                wait_until(ready, "three checkpoints", interval=0.05 + 0.013 * round_number)
                assert writer.poll() is None, "it writes on"
            finally:
                writer.send_signal(signal.SIGKILL)
        with Checkpoints(folder, keep=3) as checkpoints:
            before = newest
            newest = checkpoints.latest() or 0
            assert newest >= before + 3
            for step in checkpoints.steps():
                values = checkpoints.restore(
                    step, {"params": {"a": np.empty((400, 400), np.float32)}}
                )
                assert (values["params"]["a"] == step).all()


def test_checkpoints_by_the_clock_do_not_replace_those_by_steps(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "c", keep=2, milestone_steps=100) as checkpoints:
        for step in (40, 103, 130, 170, 205, 220, 260, 290, 310, 330, 350, 370):
            checkpoints.save(step, {"counters": {"steps": step}})
        checkpoints.wait()
        assert checkpoints.steps() == [205, 310, 350, 370]
