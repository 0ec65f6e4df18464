from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax.core.errors import UserError
from motif_jax.glam import trajectories as parquet

ABOUT = {"environment": "x", "options": {}, "actions": ["left", "right"], "player": "p"}


def test_steps_are_read_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_STEPS", 3)
    episodes = [
        parquet.TrajectoryEpisode(
            2 * n, 70 + n, [f"{n}{k}" for k in range(n)], [1] * n, [0.5 * n] * n
        )
        for n in (1, 2, 0, 4, 1)
    ]
    path = tmp_path / "t.parquet"
    prompts = ["10", "20", "21", "40", "41", "42", "43", "10"]
    assert parquet.write(path, episodes, ABOUT) == 8
    assert parquet.read(path) == parquet.Pairs(prompts, [1] * 8)
    assert parquet.about(path) == ABOUT
    assert list(map(str, pq.read_table(path).slice(1, 2).to_pylist())) == [
        f"{{'episode': 4, 'seed': 72, 'step': {step}, 'prompt': '2{step}', 'action': 1, 'reward': 1.0}}"
        for step in (0, 1)
    ]
    assert [pq.ParquetFile(path).metadata.row_group(n).num_rows for n in range(3)] == [3, 4, 1]
    assert (parquet.write(path, [], ABOUT), parquet.read(path)) == (0, parquet.Pairs([], []))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError,
        match=r"t\.parquet does not exist: give a folder that collect_trajectories has written$",
    ):
        parquet.about(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("about", "columns", "words"),
    [
        (
            {"actions": []},
            {},
            r"holds no trajectories \(its metadata lack one of environment, options, actions\)",
        ),
        (3, {}, "holds no trajectories .*: give a folder that collect_trajectories has written"),
        (
            ABOUT,
            {"action": [0, 2]},
            r"is damaged \(an action that is not one of 2\): collect it again",
        ),
        (ABOUT, {"action": [None, 1]}, r"is damaged \(.*\): collect it again"),
        (ABOUT, {"prompt": ["a", None]}, r"is damaged \(.*\): collect it again"),
    ],
    ids=["no environment", "no object", "no such action", "no action", "no prompt"],
)
def test_files_without_trajectories_are_refused(
    tmp_path: Path, about: Any, columns: dict[str, Any], words: str
) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"prompt": ["a", "b"], "action": [0, 1], **columns})
    pq.write_table(
        table.replace_schema_metadata({"motif_jax.trajectories": json.dumps(about)}), path
    )
    with pytest.raises(UserError, match=rf"t\.parquet {words}"):
        parquet.read(path)
