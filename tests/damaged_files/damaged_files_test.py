"""Files of every kind, damaged in every way: what cannot be used is said in one line, and nothing
else is raised.
"""

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
# Of lines with a checksum each, of which damaged ones are left out: a file of such lines alone is
# an empty one.
CHECKED_LINES = {"answers", "labels"}


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", READERS)
def test_damage_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kind = READERS[name]
    folder = tmp_path / "undamaged"
    folder.mkdir()
    path = folder / kind.name
    kind.make(folder)
    kind.read(folder)
    data = path.read_bytes()
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    byte_cases, json_cases = kind.cases
    harmed = [*harms.byte_harms(data, rng, byte_cases), *harms.json_harms(data, rng, json_cases)]
    if kind.cases == FEW:
        harmed = harmed[::3]

    refused: set[str] = set()
    problems: list[str] = []
    for harm, changed in harmed:
        path.write_bytes(changed)
        problems += _problems(kind, folder, harm, refused)
    path.unlink()
    problems += _problems(kind, folder, "missing", refused)
    path.unlink(missing_ok=True)  # some readers make one
    path.mkdir()
    problems += _problems(kind, folder, "a folder", refused)

    assert not problems, "\n".join(problems)
    assert refused & ({"a folder"} if name in CHECKED_LINES else FOREIGN), (
        "it never looks into the file"
    )


def _problems(kind: Reader, folder: Path, harm: str, refused: set[str]) -> list[str]:
    """What is wrong with the error about a harm; adds the harm to `refused` where there is an
    error.
    """
    try:
        kind.read(folder)
    except Exception as error:
        refused.add(harm)
        if isinstance(error, UserError):
            return [] if str(error).strip() else [f"{harm}: the error has no text"]
        if system_error(error, folder):
            return []
        return [f"{harm}: {type(error).__name__}: {str(error)[:150]}"]
    return []
