"""The evaluate stage through its real flags: seeds, resume after a real kill, recordings, mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from motif_jax.actors.rerecording import record_actions
from motif_jax.envs import replay
from motif_jax.reports import evaluation_files
from tests.reward_fixtures import load_config

BASE = [
    sys.executable, "-m", "motif_jax.launch", "--config=configs/evaluate.py:smoke", "--config.workers=2",
]  # fmt: skip


def start(repository: Path, workdir: Path, *flags: str) -> subprocess.Popen:
    command = [*BASE, f"--workdir={workdir}", *flags]
    return subprocess.Popen(
        command,
        cwd=repository,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def evaluate(repository: Path, workdir: Path, *flags: str) -> subprocess.CompletedProcess:
    process = start(repository, workdir, *flags)
    out, error = process.communicate(timeout=500)
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def rows_of(workdir: Path) -> list[dict]:
    rows = sorted(
        evaluation_files.read_rows(workdir / evaluation_files.JOURNAL), key=lambda row: row["index"]
    )
    return [{k: v for k, v in row.items() if not k.startswith("session")} for row in rows]


def test_random_policy_on_nethack(repository, tmp_path):
    done = evaluate(repository, tmp_path / "a", "--config.record_every=3")
    assert done.returncode == 0, done.stderr
    assert "game score" in done.stdout
    summary = json.loads((tmp_path / "a" / evaluation_files.SUMMARY).read_text())
    rows = rows_of(tmp_path / "a")
    assert summary["episodes"] == len(rows) == 4
    assert summary["steps_per_second"] > 0
    for key in ("return", "score", "dlvl", "gold", "xlvl", "scout", "turns", "length", "success"):
        value = summary["measures"][key]["mean"]
        assert value["value"] == pytest.approx(np.mean([row[key] for row in rows]))
        assert value["low"] <= value["value"] <= value["high"]
    table = pyarrow.parquet.read_table(tmp_path / "a" / evaluation_files.TABLE).to_pylist()
    assert [row["seed"] for row in table] == [row["seed"] for row in rows]
    assert len(table[1]["actions"]) == rows[1]["length"]
    recordings = sorted(path.name for path in (tmp_path / "a" / "recordings").glob("*.json"))
    assert recordings == ["episode-00000.json", "episode-00003.json"]
    recording = replay.Recording.load(tmp_path / "a" / "recordings" / "episode-00003.json")
    rewards = [moment.reward for moment in replay.replay(recording)]
    assert sum(rewards) == pytest.approx(rows[3]["return"], abs=1e-4)
    again = evaluate(repository, tmp_path / "b", "--config.workers=1")
    assert again.returncode == 0, again.stderr
    assert rows_of(tmp_path / "b") == rows, "another number of workers plays the same"
    other = evaluate(repository, tmp_path / "c", "--config.seed=1", "--config.episodes=2")
    assert other.returncode == 0
    assert rows_of(tmp_path / "c")[0]["seed"] != rows[0]["seed"]


@pytest.mark.parametrize(
    ("stage_name", "flags", "said"),
    [
        (
            "evaluate",
            ["policy=agent", "agent.dir=FOLDER"],
            "is a run of train_reward, not of train_agent",
        ),
        ("evaluate", ["reward.dir=FOLDER"], "checkpoint"),
        ("replay", ["recordings=FOLDER", "agent.dir=FOLDER"], "is not a recording of an episode"),
        (
            "evaluate",
            ["environment.name=Recall-v0", "compat.sober_mask=True"],
            "config.compat.sober_mask=True: must be off on Recall-v0: only the game has published quirks",
        ),
    ],
)
def test_what_folders_hold_is_checked_before_the_run_folder_is_made(
    repository, tmp_path, stage_name, flags, said
):
    import importlib

    from motif_jax.support.errors import UserError

    wrong, games, workdir = tmp_path / "wrong", tmp_path / "games", tmp_path / "new"
    wrong.mkdir()
    (wrong / "other.json").write_text("{}")
    record_actions("Recall-v0", {}, 1, np.array([0, 1])).save(games / "game.json")
    settings = load_config("train_reward").to_dict() | {"dataset_dir": "/nowhere"}
    (wrong / "config.json").write_text(json.dumps(settings, default=list))
    flags = [flag.replace("FOLDER", str(wrong)).replace("GAMES", str(games)) for flag in flags]
    with pytest.raises(UserError) as error:
        importlib.import_module(f"motif_jax.stages.{stage_name}").check(
            _config(repository, *flags, stage=stage_name), workdir
        )
    assert said in str(error.value)
    assert not workdir.exists()


def _config(repository: Path, *flags: str, stage: str = "evaluate"):
    config = load_config(stage, "" if stage == "replay" else "smoke")
    for flag in flags:
        key, value = flag.removeprefix("--config.").split("=")
        section = config
        *path, last = key.split(".")
        for part in path:
            section = section[part]
        section[last] = True if value == "True" else int(value) if value.isdigit() else value
    return config
