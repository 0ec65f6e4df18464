"""Files of every kind, damaged in every way: what cannot be used is said in one line, and nothing else is raised."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.files import system_error
from tests.damaged_files import harms
from tests.damaged_files.kinds import FEW, READERS, Reader

# What no kind of file is: who reads it refuses it at least once.
FOREIGN = {"noise", "no text", "deep"}
# Of lines with a checksum each, of which damaged ones are left out: a file of such lines alone is an empty one.
CHECKED_LINES = {"answers", "labels"}


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_quickly")]


@pytest.mark.parametrize("name", READERS)
def test_damage_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kind = READERS[name]
    (tmp_path / "good").mkdir()
    path = tmp_path / "good" / kind.name
    kind.make(tmp_path / "good")
    kind.read(tmp_path / "good")
    data = path.read_bytes()
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    found, refused = [], set()
    cases = [*harms.byte_harms(data, rng, kind.cases[0]), *harms.json_harms(data, rng, kind.cases[1])]
    for harm, changed in cases[:: 3 if kind.cases == FEW else 1]:
        path.write_bytes(changed)
        found += _wrong(kind, tmp_path / "good", harm, refused)
    path.unlink()
    found += _wrong(kind, tmp_path / "good", "not there", refused)
    path.unlink(missing_ok=True)  # of those that make one
    path.mkdir()
    found += _wrong(kind, tmp_path / "good", "a folder", refused)
    assert not found, "\n".join(found)
    assert refused & ({"a folder"} if name in CHECKED_LINES else FOREIGN), "it never looks into the file"


def _wrong(kind: Reader, folder: Path, harm: str, refused: set[str]) -> list[str]:
    """What is wrong with how the damage was told; adds it to `refused` where it was."""
    try:
        kind.read(folder)
    except Exception as error:
        refused.add(harm)
        if isinstance(error, UserError):
            return [] if str(error).strip() else [f"{harm}: nothing is said"]
        if system_error(error, folder):
            return []
        return [f"{harm}: {type(error).__name__}: {str(error)[:150]}"]
    return []
