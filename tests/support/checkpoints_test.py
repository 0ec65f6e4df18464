"""Real Orbax checkpoints: what is kept, what is restored, and what is refused."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.support.checkpoints import JSON, Checkpoints
from motif_jax.support.errors import UserError

PARAMS = {"dense": {"kernel": jnp.arange(6.0).reshape(2, 3)}, "bias": jnp.ones(3, jnp.bfloat16)}


def test_last_and_best_are_kept_and_restored_by_item(tmp_path: Path) -> None:
    optimizer = optax.chain(optax.clip_by_global_norm(4.0), optax.adam(1e-3)).init(PARAMS)
    with Checkpoints(tmp_path / "c", keep=2, keep_best="return") as checkpoints:
        for step in range(5):
            scaled = jax.tree.map(lambda leaf, step=step: leaf * step, PARAMS)
            items = {"params": scaled, "optimizer": optimizer, "counters": {"steps": step, "note": None}}
            checkpoints.save(step, items, metrics={"return": 10.0 if step == 1 else step})
    with Checkpoints(tmp_path / "c", keep=2, keep_best="return") as checkpoints:
        assert checkpoints.steps() == [1, 3, 4]
        assert checkpoints.latest() == 4
        assert checkpoints.best() == 1
        assert checkpoints.metrics(1) == {"return": 10.0}
        found = checkpoints.restore(3, {"params": jax.eval_shape(lambda: PARAMS), "counters": JSON})
        assert found["counters"] == {"steps": 3, "note": None}
        np.testing.assert_array_equal(found["params"]["dense"]["kernel"], 3 * np.arange(6.0).reshape(2, 3))
        assert found["params"]["bias"].dtype == jnp.bfloat16
        restored = checkpoints.restore(None, {"optimizer": optimizer})["optimizer"]
        assert jax.tree.structure(restored) == jax.tree.structure(optimizer)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "c") as checkpoints:
        checkpoints.save(7, {"params": PARAMS}, asynchronous=False)
        other = {"dense": {"kernel": jnp.zeros((2, 4))}, "bias": PARAMS["bias"]}
        with pytest.raises(UserError, match=r"dense/kernel: float32\[2, 3\] saved, float32\[2, 4\] wanted"):
            checkpoints.restore(7, {"params": other})
        with pytest.raises(UserError, match="has no optimizer: it has params"):
            checkpoints.restore(7, {"optimizer": PARAMS})
        with pytest.raises(UserError, match=r"no checkpoint 8: it has \[7\]"):
            checkpoints.restore(8, {"params": PARAMS})
    with pytest.raises(UserError, match="no checkpoint was saved"):
        Checkpoints(tmp_path / "none", read_only=True)


def test_a_reader_sees_new_checkpoints_and_removes_none(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "c", keep=1) as writer:
        writer.save(1, {"params": PARAMS}, asynchronous=False)
        with Checkpoints(tmp_path / "c", read_only=True) as reader:
            assert reader.steps() == [1]
            writer.save(2, {"params": PARAMS}, asynchronous=False)
            assert reader.steps() == [2]


def test_a_step_is_saved_once_whatever_the_file_system_shows(tmp_path: Path) -> None:
    """Hosts take the same branch: a view of the folder that lags behind must not decide."""
    with Checkpoints(tmp_path / "c") as checkpoints:
        checkpoints.save(1, {"params": PARAMS}, asynchronous=False)
        (tmp_path / "c" / "1").rename(tmp_path / "unseen")
        checkpoints.save(1, {"params": PARAMS}, asynchronous=False)
        assert checkpoints.steps() == []
        (tmp_path / "unseen").rename(tmp_path / "c" / "1")
    with Checkpoints(tmp_path / "c") as resumed:
        resumed.save(1, {"params": {"other": np.ones(2)}}, asynchronous=False)
        resumed.save(2, {"params": PARAMS}, asynchronous=False)
        assert resumed.steps() == [1, 2]
        resumed.restore(1, {"params": PARAMS})


def test_a_removal_that_is_cut_off_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(path: Path) -> None:
        next(file for file in path.rglob("*") if file.is_file()).unlink()
        raise KeyboardInterrupt

    with Checkpoints(tmp_path / "c", keep=1) as writer:
        writer.save(1, {"params": PARAMS}, asynchronous=False)
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", cut_off)
            with pytest.raises(KeyboardInterrupt):
                writer.save(2, {"params": PARAMS}, asynchronous=False)
    with Checkpoints(tmp_path / "c", read_only=True) as reader:
        assert reader.steps() == [2]
    with Checkpoints(tmp_path / "c", keep=1) as writer:
        assert writer.steps() == [2]
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["2"]


WRITER = """
import sys, numpy as np
from motif_jax.support.checkpoints import Checkpoints
with Checkpoints(sys.argv[1], keep=3) as checkpoints:
    step = (checkpoints.latest() or 0)
    while True:
        step += 1
        checkpoints.save(step, {"params": {"a": np.full((400, 400), step, np.float32)}})
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_whole_checkpoints(tmp_path: Path) -> None:
    folder, newest = tmp_path / "c", 0
    for round_number in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(folder)]) as writer:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                done = [int(p.name) for p in folder.glob("*") if p.name.isdigit()]
                if done and max(done) >= newest + 3:
                    break
                time.sleep(0.05 + 0.013 * round_number)
            writer.send_signal(signal.SIGKILL)
        with Checkpoints(folder, keep=3) as checkpoints:
            newest = checkpoints.latest() or 0
            assert newest > 0
            for step in checkpoints.steps():
                values = checkpoints.restore(step, {"params": {"a": np.empty((400, 400), np.float32)}})
                assert (values["params"]["a"] == step).all()
