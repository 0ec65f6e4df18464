"""Rows of runs that the repository keeps fit their studies."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.core.config import flat
from motif_jax.core.files import read_json_lines
from motif_jax.reports import run_study as study
from motif_jax.reports.study_config import StudyConfig
from motif_jax.schema import read_section
from tests.reward_fixtures import REPOSITORY, load_config
from tests.stage_inputs import variants

KEPT = (
    "judge_study:",
    "judge_study:keycorridor",
    "judge_study:multiroom",
    "judge_study:keyroom",
    "judge_study:crafter",
    "judge_study:nethack",
    "judge_study:staircase",
    "judge_study:steering",
    "minigrid_study:",
    "minihack_study:",
    "oni_study:",
    "steering_study:",
    "results:",
    "results:laptop",
    "results:diagnosis",
)


@pytest.mark.parametrize("study_of", KEPT)
def test_kept_rows_are_runs_of_their_study(study_of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config that names the same work by other flags would run hours of it again."""
    monkeypatch.chdir(REPOSITORY)
    config = read_section(StudyConfig, load_config(*study_of.split(":")))
    planned = [run.identity for run in study.runs(config, Path("runs"))]

    rows = read_json_lines(config.rows)
    strays = [
        (row["method"], row["seed"])
        for row in rows
        if not any(identity.items() <= row.items() for identity in planned)
    ]

    assert rows
    assert strays == []


def test_every_study_with_kept_rows_is_held_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    configs = [*REPOSITORY.glob("configs/*_study.py"), REPOSITORY / "configs/results.py"]
    names = [f"{path.stem}:{variant}" for path in configs for variant in variants(path.stem)]
    with_rows = [name for name in names if Path(load_config(*name.split(":")).rows).is_file()]
    assert sorted(with_rows) == sorted(KEPT)


@pytest.mark.parametrize(
    ("study_of", "count"),
    [
        ("results:gpu", 36),
        ("results:diagnosis", 12),
        ("minigrid_study:", 70),
        ("minihack_study:", 40),
        ("judge_study:", 33),
        ("steering_study:demo", 3),
    ],
)
def test_the_studies_of_results_can_start(
    study_of: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    config = load_config(*study_of.split(":"))
    study.check(config, tmp_path)

    planned = study.runs(read_section(StudyConfig, config), tmp_path)

    assert len(planned) == count
    assert len({run.games for run in planned}) == len(planned)
    # A flag that a config does not have would end the first run, hours after the start.
    variant = config.training.split()[0].partition(":")[2]
    keys = flat(load_config("train_agent", variant).to_dict())
    for run in planned:
        for flag in run.identity["flags"].partition(" | ")[0].split()[1:]:
            assert flag.removeprefix("--config.").partition("=")[0] in keys
