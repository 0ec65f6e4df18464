from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

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
