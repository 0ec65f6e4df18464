"""Checkpoints that somebody made up, digests and all: each is one line, and nothing that they name
is imported.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorstore

from motif_jax.core import digests
from motif_jax.core.checkpoint_items import ANY, JSON
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError

PARAMS = {"a": np.ones((3, 4), np.float32)}


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undamaged")
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(1, {"params": PARAMS, "progress": {"steps": 1}}, asynchronous=False)
    return folder


def huge(step: Path) -> None:
    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{step}/params/"}).result()
    about = json.loads(store.read("a/zarr.json").result().value)
    store.write("a/zarr.json", json.dumps(about | {"shape": [25_000_000_000, 4]}).encode()).result()


def nested(step: Path) -> None:
    (step / "_CHECKPOINT_METADATA").write_text("[" * 100_000)


def importing(step: Path) -> None:
    path = step / "_CHECKPOINT_METADATA"
    handlers = dict.fromkeys(("params", "progress"), "evil.Handler")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"item_handlers": handlers}))


def crafted(undamaged: Path, folder: Path, change: Callable[[Path], object]) -> Path:
    shutil.copytree(undamaged, folder)
    change(folder / "1")
    (folder / "1" / digests.FILE).unlink()
    digests.seal(folder / "1")
    return folder


@pytest.mark.parametrize(
    ("change", "line"), [(huge, "params takes 381,470 MiB of memory"), (nested, "cannot be read")]
)
def test_a_crafted_checkpoint_is_one_line(
    undamaged: Path, tmp_path: Path, change, line: str
) -> None:
    folder = crafted(undamaged, tmp_path / "run", change)
    with (
        Checkpoints(folder, read_only=True) as checkpoints,
        pytest.raises(UserError, match=line) as error,
    ):
        checkpoints.restore(None, {"params": ANY, "progress": JSON})
    assert len(str(error.value).splitlines()[0]) == len(str(error.value)) < 600


def test_modules_that_a_checkpoint_names_are_not_imported(
    undamaged: Path, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "evil.py").write_text("class Handler: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    folder = crafted(undamaged, tmp_path / "run", importing)
    with Checkpoints(folder, read_only=True) as checkpoints:
        restored = checkpoints.restore(None, {"params": PARAMS, "progress": JSON})
    np.testing.assert_array_equal(restored["params"]["a"], PARAMS["a"])
    assert "evil" not in sys.modules
