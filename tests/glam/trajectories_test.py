from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax.glam import trajectories as parquet
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

ABOUT = {"environment": "x", "options": {}, "actions": ["left", "right"], "player": "p"}


def test_steps_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_ROW_GROUP", 3)
    episodes = [
        parquet.TrajectoryEpisode(2 * n, 70 + n, [f"{n}{k}" for k in range(n)], [1] * n, [0.5 * n] * n)
        for n in (1, 2, 0, 4, 1)
    ]
    path, prompts = tmp_path / "t.parquet", ["10", "20", "21", "40", "41", "42", "43", "10"]
    assert parquet.write(path, episodes, ABOUT) == 8
    assert parquet.read(path) == parquet.Pairs(prompts, [1] * 8, ABOUT)
    assert list(map(str, pq.read_table(path).slice(1, 2).to_pylist())) == [
        f"{{'episode': 4, 'seed': 72, 'step': {step}, 'prompt': '2{step}', 'action': 1, 'reward': 1.0}}"
        for step in (0, 1)
    ]
    assert [pq.ParquetFile(path).metadata.row_group(n).num_rows for n in range(3)] == [3, 4, 1]
    assert (parquet.write(path, [], ABOUT), parquet.read(path)) == (0, parquet.Pairs([], [], ABOUT))


def test_what_holds_no_trajectories_is_told(tmp_path: Path, record: bool) -> None:
    path = tmp_path / "t.parquet"
    found = [outcome_text(parquet.about, path, folder=tmp_path)]
    given = ({"action": [0, 2]}, {"action": [None, 1]}, {"prompt": ["a", None]})
    for about, columns in (({"actions": []}, {}), (3, {}), *((ABOUT, each) for each in given)):
        table = pa.table({"prompt": ["a", "b"], "action": [0, 1], **columns})
        pq.write_table(table.replace_schema_metadata({"motif_jax.trajectories": json.dumps(about)}), path)
        found.append(outcome_text(parquet.read, path, folder=tmp_path))
    assert_matches_packed_recording("trajectories_refused", {"found": "\n".join(found)}, record)
