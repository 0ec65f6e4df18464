"""Arrays of anybody: a header that claims too much, names objects or bombs the parser is one line,
mapped or read.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.files import load_array
from motif_jax.ilql.tasks.visdial.data import Features

HEADERS = {
    "huge": "{'descr': '<f8', 'fortran_order': False, 'shape': (25000000000,)}",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
    "nested": "(" * 4900 + ")" * 4900,
    "sums": "1" + "+1j" * 3000,
    "escapes": "\x1b[2J" * 100,
}


def write(path: Path, header: str) -> Path:
    data = header.encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", len(data)) + data + bytes(64))
    return path


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("name", HEADERS)
def test_a_hostile_header_is_one_short_line(tmp_path: Path, name: str, mapped: bool) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - what is said is looked at below
        load_array(write(tmp_path / "a.npy", HEADERS[name]), mapped)
    assert len(str(error.value)) <= 200
    assert str(error.value).isprintable()


def test_an_archive_that_claims_more_than_the_memory_is_refused(
    tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "images.npz"
    np.savez_compressed(path, images_val=np.zeros((1000, 1000)))
    monkeypatch.setattr("motif_jax.ilql.tasks.visdial.data.available_memory", lambda: 1 << 20)
    with pytest.raises(UserError, match="images_val takes 8 MiB of memory, 1 MiB are left"):
        Features("features", str(path), "val")
    np.save(tmp_path / "b.npy", np.zeros((2, 2)))
    (tmp_path / "b.npy").rename(path)
    with pytest.raises(UserError, match="one array, not an archive"):
        Features("features", str(path), "val")
