"""Rows of runs that the repository keeps fit their studies."""

from __future__ import annotations

from pathlib import Path

import pytest
from ml_collections import ConfigDict

from motif_jax import schema
from motif_jax.core.config import flat
from motif_jax.core.files import read_json_lines
from motif_jax.reports import run_study as study
from motif_jax.reports.study_config import StudyConfig
from tests.reward_fixtures import REPOSITORY, load_config
from tests.stage_inputs import variants

KEPT = (
    "judges:",
    "judges:keycorridor",
    "judges:multiroom",
    "judges:keyroom",
    "judges:crafter",
    "judges:nethack",
    "judges:staircase",
    "judges:steering",
    "minigrid:",
    "minihack:",
    "nethack_long:pilots",
    "nethack_long:seeds",
    "oni:",
    "pay:",
    "steering:",
    "results:",
    "results:laptop",
    "results:diagnosis",
)


def load_study(name: str) -> ConfigDict:
    """The config of docs/studies/STUDY.py:VARIANT, `name` is STUDY:VARIANT."""
    study_name, _, variant = name.partition(":")
    return load_config(f"docs/studies/{study_name}", variant)


def all_studies() -> list[str]:
    """The variants of the files in docs/studies that are studies, as STUDY:VARIANT."""
    files = sorted((REPOSITORY / "docs" / "studies").glob("*.py"))
    studies = [path.stem for path in files if "studies.study(" in path.read_text(encoding="utf-8")]
    return [f"{name}:{variant}" for name in studies for variant in variants(f"docs/studies/{name}")]


@pytest.mark.parametrize("study_of", all_studies())
def test_values_of_a_study_are_allowed(study_of: str) -> None:
    schema.validate(load_study(study_of))


@pytest.mark.parametrize("study_of", KEPT)
def test_kept_rows_are_runs_of_their_study(study_of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config that names the same work by other flags would run hours of it again."""
    monkeypatch.chdir(REPOSITORY)
    config = schema.read_section(StudyConfig, load_study(study_of))
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
    with_rows = [name for name in all_studies() if Path(load_study(name).rows).is_file()]
    assert sorted(with_rows) == sorted(KEPT)


@pytest.mark.parametrize(
    ("study_of", "count"),
    [
        ("results:gpu", 36),
        ("results:diagnosis", 12),
        ("minigrid:", 70),
        ("minihack:", 40),
        ("judges:", 33),
        ("steering:demo", 3),
    ],
)
def test_the_studies_of_results_can_start(
    study_of: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    config = load_study(study_of)
    study.check(config, tmp_path)

    planned = study.runs(schema.read_section(StudyConfig, config), tmp_path)

    assert len(planned) == count
    assert len({run.games for run in planned}) == len(planned)
    # A flag that a config does not have would end the first run, hours after the start.
    variant = config.training.split()[0].partition(":")[2]
    keys = flat(load_config("train_agent", variant).to_dict())
    for run in planned:
        for flag in run.identity["flags"].partition(" | ")[0].split()[1:]:
            assert flag.removeprefix("--config.").partition("=")[0] in keys
