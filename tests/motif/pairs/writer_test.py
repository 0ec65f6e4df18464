from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from motif_jax.motif.pairs.writer import PairsWriter
from tests.processes import small_disk


def test_an_array_has_its_room_before_it_is_written(tmp_path: Path) -> None:
    """Writing through memory would end the process."""
    with small_disk(tmp_path / "disk", 1_000_000) as resize:
        writer = PairsWriter(tmp_path / "disk" / "d", 1000)
        writer.create("data/a", (100,), np.uint8)[:] = 1
        message = r"No space left on device, 8\.\d MB are needed.*data/b\.npy"
        with pytest.raises(OSError, match=message) as raised, writer:
            writer.create("data/b", (4000,), np.uint8)
        assert raised.value.errno == errno.ENOSPC
        assert not list((tmp_path / "disk" / "d").rglob("*.npy"))
        resize(20_000_000)
        with PairsWriter(tmp_path / "disk" / "d", 1000) as writer:
            writer.create("data/b", (4000,), np.uint8)[:] = 1
            writer.commit({})
