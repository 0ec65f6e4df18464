"""Real Orbax checkpoints: what is kept, what is restored, and what is refused."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.core import digests
from motif_jax.core.checkpoint_items import JSON
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError
from tests.processes import wait_until

PARAMS = {"dense": {"kernel": jnp.arange(6.0).reshape(2, 3)}, "bias": jnp.ones(3, jnp.bfloat16)}


def test_last_and_best_are_kept_and_restored_by_item(tmp_path: Path) -> None:
    optimizer = optax.chain(optax.clip_by_global_norm(4.0), optax.adam(1e-3)).init(PARAMS)
    with Checkpoints(tmp_path / "c", keep=2, keep_best="return") as checkpoints:
        for step in range(5):
            scaled = jax.tree.map(lambda leaf, step=step: leaf * step, PARAMS)
            items = {"params": scaled, "optimizer": optimizer, "counters": {"steps": step, "note": None}}
            checkpoints.save(step, items, metrics={"return": 10.0 if step == 1 else step})
    with Checkpoints(tmp_path / "c", read_only=True, keep_best="return", best_mode="min") as checkpoints:
        assert checkpoints.best() == 3
    with Checkpoints(tmp_path / "c", keep=2, keep_best="return") as checkpoints:
        assert (checkpoints.steps(), checkpoints.latest(), checkpoints.best()) == ([1, 3, 4], 4, 1)
        assert checkpoints.metrics(1) == {"return": 10.0}
        loaded = checkpoints.restore(3, {"params": jax.eval_shape(lambda: PARAMS), "counters": JSON})
        assert loaded["counters"] == {"steps": 3, "note": None}
        np.testing.assert_array_equal(loaded["params"]["dense"]["kernel"], 3 * np.arange(6.0).reshape(2, 3))
        assert loaded["params"]["bias"].dtype == jnp.bfloat16
        restored = checkpoints.restore(None, {"optimizer": optimizer})["optimizer"]
        assert jax.tree.structure(restored) == jax.tree.structure(optimizer)


def test_a_large_state_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motif_jax.core.checkpoints._LARGE", 0)
    monkeypatch.setattr("motif_jax.core.checkpoints._COPY_SHARE", 0.0)
    with Checkpoints(tmp_path / "c") as checkpoints:
        checkpoints.save(1, {"params": PARAMS, "counters": {"steps": 1}})
        assert checkpoints.steps() == [1]  # written when `save` returns
        assert not list((tmp_path / "c/1").rglob("*ocdbt*"))
        checkpoints.save(2, {"params": PARAMS, "counters": {"steps": 2}})
    with Checkpoints(tmp_path / "c", read_only=True) as checkpoints:
        restored = checkpoints.restore(None, {"params": PARAMS, "counters": JSON})
    assert restored["counters"] == {"steps": 2}
    jax.tree.map(np.testing.assert_array_equal, restored["params"], PARAMS)


def test_a_checkpoint_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "c") as checkpoints:
        checkpoints.save(7, {"params": PARAMS}, asynchronous=False)
        other = {"dense": {"kernel": jnp.zeros((2, 4))}, "bias": PARAMS["bias"]}
        renamed = {"a": PARAMS["dense"], "b": PARAMS["bias"], "c": jnp.ones((), jnp.int8)}
        kernel = "float32[2, 3]"
        absent = f"a/kernel: absent saved, {kernel} wanted; b: absent saved, bfloat16[3] wanted; bias: bfloat16[3] saved, absent wanted"
        for step, wanted, line in (
            (
                7,
                {"params": other},
                f" checkpoint 7 does not fit this config: params dense/kernel: {kernel} saved, float32[2, 4] wanted",
            ),
            (7, {"params": renamed}, f" checkpoint 7 does not fit this config: params {absent} and 2 more"),
            (7, {"optimizer": PARAMS}, " checkpoint 7 has no optimizer: it has params"),
            (8, {"params": PARAMS}, " has no checkpoint 8: it has [7]"),
        ):
            with pytest.raises(UserError) as error:
                checkpoints.restore(step, wanted)
            assert str(error.value) == f"{tmp_path}/c{line}"
        assert (checkpoints.items(7), checkpoints.metrics(7), checkpoints.best()) == (["params"], {}, None)
        checkpoints.save(8, {"params": PARAMS}, {"return": 2})
        checkpoints.wait()
        shutil.rmtree(tmp_path / "c")
        assert checkpoints.steps() == []
        with pytest.raises(UserError, match=f"^{tmp_path}/c was removed while it was in use"):
            checkpoints.save(9, {"params": PARAMS})
    with pytest.raises(UserError, match=f"^{tmp_path}/none does not exist: no checkpoint was saved there$"):
        Checkpoints(tmp_path / "none", read_only=True)


def test_a_reader_sees_new_checkpoints_and_removes_none(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "c", keep=1) as writer:
        writer.save(1, {"params": PARAMS}, asynchronous=False)
        with Checkpoints(tmp_path / "c", read_only=True) as reader:
            assert reader.steps() == [1]
            writer.save(2, {"params": PARAMS}, asynchronous=False)
            assert reader.steps() == [2]


def test_a_removal_that_is_cut_off_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path) -> None:
        next(file for file in path.rglob("*") if file.is_file()).unlink()
        raise KeyboardInterrupt

    with Checkpoints(tmp_path / "c", keep=1) as writer:
        writer.save(1, {"params": PARAMS}, asynchronous=False)
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.save(2, {"params": PARAMS}, asynchronous=False)
    with Checkpoints(tmp_path / "c", read_only=True) as reader:
        assert reader.steps() == [2]
    with Checkpoints(tmp_path / "c", keep=1) as writer:
        assert (writer.steps(), os.listdir(tmp_path / "c")) == ([2], ["2"])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1 << (len(data) % 8)
    path.write_bytes(bytes(data))


def two_steps(folder: Path) -> Path:
    with Checkpoints(folder, keep_best="return") as checkpoints:
        for step in (1, 2):
            items = {"params": PARAMS, "counters": {"steps": step}}
            checkpoints.save(step, items, {"return": step}, asynchronous=False)
    return folder


def test_damage_to_any_file_of_a_checkpoint_is_detected(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = two_steps(tmp_path / "c")
    files = [path for path in (folder / "2").rglob("*") if path.is_file()]
    assert len(files) > 15
    for path in files:
        content = path.read_bytes()
        for harm in (flip, lambda path: path.write_bytes(path.read_bytes()[:-2]), Path.unlink):
            harm(path)
            with Checkpoints(folder, keep_best="return", read_only=True) as reader:
                assert (reader.latest(), reader.best()) == (1, 1), (path, harm)
                with pytest.raises(UserError, match=r"c/2 is damaged .*choose another"):
                    reader.restore(2, {"counters": JSON})
            path.write_bytes(content)
        printed = capfd.readouterr().err
        assert path.relative_to(folder / "2").as_posix() in printed
    with Checkpoints(folder, keep_best="return", read_only=True) as reader:
        assert (reader.latest(), reader.best()) == (2, 2)
        assert reader.restore(None, {"counters": JSON}) == {"counters": {"steps": 2}}


def test_a_damaged_checkpoint_is_named_and_saved_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = two_steps(tmp_path / "c")
    flip(max((folder / "2").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0))
    capfd.readouterr()
    with Checkpoints(folder, keep=1) as checkpoints:
        assert checkpoints.latest() == 1
        checkpoints.save(1, {"params": {"a": np.ones(2)}}, asynchronous=False)  # is there
        assert checkpoints.restore(1, {"counters": JSON})
        checkpoints.save(2, {"params": {"a": np.ones(2)}}, asynchronous=False)
        assert checkpoints.latest() == 2
        assert checkpoints.restore(2, {"params": {"a": np.zeros(2)}})["params"]["a"].sum() == 2
    (printed,) = capfd.readouterr().err.splitlines()
    assert f"{folder}/2 is damaged" in printed
    assert os.listdir(folder) == ["2"]


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


def test_nothing_intact_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    folder = two_steps(tmp_path / "c")
    for step in (1, 2):
        (folder / str(step) / "params" / "_METADATA").unlink()
    with Checkpoints(folder) as checkpoints:
        line = r"no intact checkpoint of \[1, 2\]: restore one from a copy, or remove the folder and train again$"
        with pytest.raises(UserError, match=f"^{folder} has {line}"):
            checkpoints.latest()
        assert checkpoints.latest(all_damaged_is_none=True) is None


def test_a_kill_before_the_digests_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    folder = two_steps(tmp_path / "c")
    checkpoints = Checkpoints(folder)
    with monkeypatch.context() as patched:
        patched.setattr(digests, "seal", killed)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_234_567))
        line = r"No space left on device \(1\.2 MB are free there\); earlier ones are intact: remove the cause, then the same command"
        with pytest.raises(UserError, match=rf"^{folder}: checkpoint 3 could not be saved: {line} resumes$"):
            checkpoints.save(3, {"params": PARAMS}, asynchronous=False)
        assert (folder / ".saving" / "3").is_dir()
        shutil.copytree(folder / ".saving", tmp_path / "killed")
    checkpoints.close()
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]
    shutil.move(tmp_path / "killed", folder / ".saving")
    with Checkpoints(folder) as checkpoints:
        assert checkpoints.latest() == 2
        checkpoints.save(3, {"params": PARAMS}, asynchronous=False)
        assert checkpoints.latest() == 3
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "3"]


WRITER = """
import sys, numpy as np
from motif_jax.core import digests
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
                values = checkpoints.restore(step, {"params": {"a": np.empty((400, 400), np.float32)}})
                assert (values["params"]["a"] == step).all()


def test_checkpoints_by_the_clock_do_not_replace_those_by_steps(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "c", keep=2, milestone_steps=100) as checkpoints:
        for step in (40, 103, 130, 170, 205, 220, 260, 290, 310, 330, 350, 370):
            checkpoints.save(step, {"counters": {"steps": step}})
        checkpoints.wait()
        assert checkpoints.steps() == [205, 310, 350, 370]
