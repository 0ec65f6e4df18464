"""A folder holds one import, of the files that its import.json has digests of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from motif_jax.support import digests, import_origin
from motif_jax.support.errors import UserError


def test_an_import_is_made_once_and_another_is_refused(tmp_path: Path) -> None:
    source, workdir = tmp_path / "source", tmp_path / "run"
    source.write_bytes(b"one")
    config = {"stage": "import_x", "seed": 1, "file": str(source), "other": None, "heads": 2}
    files = ["file", "other"]
    assert not import_origin.check(workdir, config, files, whole=False)
    refusals = {"unknown origin": True, "train_x": False}
    for stage, whole in refusals.items():
        if not whole:
            workdir.mkdir()
            (workdir / "config.json").write_text('{"stage": "train_x"}')
        with pytest.raises(
            UserError, match=f"^--workdir={workdir} holds a run of {stage}: choose another --workdir$"
        ):
            import_origin.check(workdir, config, files, whole)
    (workdir / ".config.json.0.tmp").touch()
    import_origin.write(workdir, config, files)
    assert sorted(path.name for path in workdir.iterdir()) == ["config.json", import_origin.FILE]
    about = json.loads((workdir / import_origin.FILE).read_text())
    assert about == {"stage": "import_x", "file": digests.of_bytes(b"one"), "other": None, "heads": 2}
    (tmp_path / "copy").write_bytes(b"one")
    copied = {**config, "seed": 2, "file": str(tmp_path / "copy")}
    assert [import_origin.check(workdir, copied, files, whole) for whole in (False, True)] == [False, True]
    changed = {**config, "heads": 3, "more": 1}
    assert not import_origin.check(workdir, changed, files, whole=False)
    for config, said in (
        (changed, r"holds another import \(heads: 2 before, 3 now; more: absent before, 1 now\)"),
        ({**changed, "stage": "import_y"}, "belongs to import_x, this is import_y"),
    ):
        with pytest.raises(UserError, match=f"^--workdir={workdir} {said}: choose another --workdir$"):
            import_origin.check(workdir, config, files, whole=True)
    for name, found in (("checkpoints/.saving", False), ("checkpoints/3", True)):
        (workdir / name).mkdir(parents=True)
        assert import_origin.has_checkpoints(workdir) is found
