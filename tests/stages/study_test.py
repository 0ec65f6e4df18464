"""A study whose programs are a script that leaves the files of a finished training or evaluation."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from motif_jax.reports import study as lines
from motif_jax.stages import study
from motif_jax.support.config import flat
from motif_jax.support.errors import UserError
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation
from tests.reward_fixtures import load_config

# Refuses a key that is asked about; takes flags alone and notes each start; copies what `templates` has for it; a run whose name stands in a file `wait` asks the study to stop, and waits to be ended.
SCRIPT = """#!/bin/sh
case "$*" in
  *--config.rewrad*--print_config) echo "error: --config.rewrad is not a key" >&2; exit 2 ;;
  *--print_config) exit 0 ;;
esac
for word in "$@"; do
  case "$word" in --workdir=*) folder="${word#--workdir=}" ;; -*|motif_jax.launch) ;; *) exit 4 ;; esac
done
name=$(basename "$folder")
echo "$name" >> "$TOYS/started"
if [ -e "$TOYS/wait" ] && [ "$(cat "$TOYS/wait")" = "$name" ]; then
  trap 'exit 75' TERM
  kill -TERM $PPID
  while :; do sleep 0.05; done
fi
[ ! -e "$TOYS/fail" ] || exit 3
mkdir -p "$folder"
case "$name" in games) cp "$TOYS/games/"* "$folder" ;; *) cp "$TOYS/run/"* "$folder" ;; esac
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the script that stands in for Python in what a study starts."""
    folder = tmp_path / "toys"
    write_agent_run(folder / "run", episodes=2)
    write_evaluation(folder / "games", "agent", evaluation_rows(5, 0.0, 1))
    program = folder / "program"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("TOYS", str(folder))
    return folder


def started(toys: Path) -> list[str]:
    path = toys / "started"
    path.touch()
    found = path.read_text().split()
    path.unlink()
    return found


def small(**changes: object) -> ConfigDict:
    config = load_config("oni_study", "smoke")
    config.prepare_order, config.seeds, config.resamples = "dataset,labels,reward", 2, 20
    config.tables.kinds, config.methods.motif = "none,motif", "--config.reward.dir={workdir}/reward"
    for key, value in changes.items():
        config[key] = value
    return config


@pytest.mark.slow
def test_what_has_a_line_is_not_run_again(toys: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "a study"
    study.check(small(), workdir)
    assert study.run(small(), workdir) is None
    # Seed by seed; what a method needs is prepared before its first run, once.
    assert started(toys) == [
        "none-1", "games", "dataset", "labels", "reward", "motif-1", "games", "none-2", "games", "motif-2", "games",
    ]  # fmt: skip
    rows = lines.read_rows(workdir / "rows.jsonl")
    assert [f"{row['method']}-{row['seed']}" for row in rows] == ["none-1", "motif-1", "none-2", "motif-2"]
    assert "motif" in (workdir / "tables.md").read_text()
    assert not (workdir / "none-1").exists()
    assert study.run(small(), workdir) is None
    assert started(toys) == []
    # Runs that are done are drawn without being made again.
    assert study.run(small(curves=ConfigDict({"kinds": "score"})), workdir) is None
    assert started(toys) == []
    assert (workdir / "images" / "tables_kinds.png").read_bytes().startswith(b"\x89PNG")
    assert "](images/tables_kinds.png)" in (workdir / "tables.md").read_text()
    workdir = tmp_path / "few"
    for most, expected in ((0, []), (1, ["none-1", "games"])):
        assert study.run(small(most_runs=most), workdir) is None
        assert started(toys) == expected
        assert (workdir / "tables.md").exists()
    workdir = tmp_path / "study"
    # Other settings are another run; braces of JSON are no folders.
    other = 'configs/oni.py:smoke --config.options={"length":4}'
    assert study.run(small(training=other, only="none"), workdir) is None
    assert started(toys) == ["none-1", "games", "none-2", "games"]


@pytest.mark.slow
@pytest.mark.parametrize("end", [(lines, "append_row"), (study.shutil, "rmtree")])
def test_a_study_that_is_killed_beside_a_line_leaves_no_folder(
    end: tuple[object, str], toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    workdir, config = tmp_path / "study", small(only="none", seeds=1)
    with monkeypatch.context() as patch:
        patch.setattr(*end, killed)
        with pytest.raises(KeyboardInterrupt):
            study.run(config, workdir)
    assert started(toys) == ["none-1", "games"]
    assert study.run(config, workdir) is None
    assert started(toys) == [], "nothing of it is made again"
    assert [row["method"] for row in lines.read_rows(workdir / "rows.jsonl")] == ["none"]
    assert not [path.name for path in workdir.iterdir() if path.is_dir()]


@pytest.mark.slow
def test_a_study_that_is_stopped_ends_its_program_and_goes_on(toys: Path, tmp_path: Path) -> None:
    (toys / "wait").write_text("games")
    assert study.run(small(only="none"), tmp_path / "study") == 75
    assert started(toys) == ["none-1", "games"]
    (toys / "wait").unlink()
    assert study.run(small(only="none"), tmp_path / "study") is None
    assert started(toys) == ["games", "none-2", "games"]


def test_flags_of_any_run_that_are_none_end_a_study_before_its_first(toys: Path, tmp_path: Path) -> None:
    config = small()
    config.methods.motif = "--config.rewrad=1 --config.reward.dir={workdir}/reward"
    with pytest.raises(UserError, match=r"^--config.rewrad is not a key \(of the study's configs/oni.py"):
        study.run(config, tmp_path / "study")
    assert started(toys) == []


@pytest.mark.slow
def test_games_of_a_method_have_their_own_flags_and_a_claim_that_fails_ends_a_study_with_1(
    toys: Path, tmp_path: Path
) -> None:
    games, claims = ConfigDict({"none": "--config.policy=random"}), "motif > none + 0.1: score"
    config = small(games=games, claims=claims, seeds=1)
    study.check(config, tmp_path)
    assert study.run(config, tmp_path) == study.NOT_CARRIED
    assert f"* {claims}: **does not hold**, +0 [" in (tmp_path / "tables.md").read_text()
    flags = [row["flags"] for row in lines.read_rows(tmp_path / "rows.jsonl")]
    assert ["--config.policy=random" in of for of in flags] == [True, False]
    started(toys)
    assert study.run(small(games=games, claims="none > motif: score", most_runs=0, seeds=1), tmp_path) == 1
    assert study.run(small(games=games, seeds=1), tmp_path) is None
    assert started(toys) == []


def test_a_curve_of_nothing_ends_a_study_before_it_begins(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.curves\.kinds='fame'"):
        study.check(small(curves={"kinds": "fame"}), tmp_path / "study")


@pytest.mark.parametrize(
    ("name", "variant", "count"),
    [
        ("results", "gpu", 36),
        ("results", "diagnosis", 12),
        ("minigrid_study", "", 70),
        ("minihack_study", "", 40),
        ("steering_study", "demo", 3),
    ],
)
def test_the_studies_of_results_can_start(
    name: str, variant: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    config = load_config(name, variant)
    study.check(config, tmp_path)
    planned = study.runs(config)
    assert len(planned) == count
    assert len({run.folder for run in planned}) == len(planned)
    # A flag that a config does not have would end the first run, hours after the start.
    known = flat(load_config("train_agent", config.training.split()[0].partition(":")[2]).to_dict())
    for run in planned:
        for flag in run.flags.split()[1:]:
            assert flag.removeprefix("--config.").partition("=")[0] in known
