"""The report stage: it reads the folders of a run, and its page, tables and exit code say what they
hold.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.glam import generalisation_files
from motif_jax.play import evaluation_files, evaluation_tables
from motif_jax.reports import report
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation, write_recordings
from tests.reward_fixtures import load_config, make_dataset

pytestmark = pytest.mark.slow


def write_tests(folder: Path) -> None:
    rows = [
        {"success": episode > 2, "return": episode / 4, "length": 9.0 + episode, "kind": 0}
        for episode in range(5)
    ]
    numbers = generalisation_files.summarise(rows, rows[::-1], ["goto"], 20, 0.9)
    tests = [
        {"name": name, "what": f"{name} words", "environment": "BabyAI", **numbers} for name in "ab"
    ]
    head = {"player": "clone", "base": "BabyAI", "episodes": 5, "confidence": 0.9, "left_out": {}}
    run_folder.write_config(folder, {"stage": "test_language_agent"})
    generalisation_files.write(folder, {**head, "tests": tests})


def write_training(folder: Path, stage: str) -> None:
    folder.mkdir()
    run_folder.write_config(folder, {"stage": stage})
    rows = [
        {"step": step, "validation/perplexity": 9 / step, "validation/loss": 7 / step}
        for step in (2, 3)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of all stages, below one; charts are left out of the page, they take seconds."""
    monkeypatch.setattr("motif_jax.display.charts.figure", lambda plot: f"<svg>{plot.title}</svg>")
    make_dataset(tmp_path / "dataset", pairs=9, messages=4, length=3)
    write_agent_run(tmp_path / "agent", episodes=41)
    write_recordings(tmp_path / "agent")
    write_training(tmp_path / "language", "pretrain_language_model")
    write_training(tmp_path / "text", "train_text")
    players = {
        "played": str(tmp_path / "agent"),
        "one": "runs/other",
        "two": "runs/other",
        "three": "fixed",
    }
    for number, (name, player) in enumerate(players.items()):
        write_evaluation(tmp_path / name, player, evaluation_rows(6, 9.0 - number, number))
    (tmp_path / "played" / "recordings").mkdir()
    for name in ("recordings/episode-00012.html", "recordings/episode-00003.html", "tokens.html"):
        (tmp_path / "played" / name).touch()
    write_tests(tmp_path / "tests")
    write_tests(tmp_path / "more")
    (tmp_path / "replays").mkdir()
    for path in sorted((tmp_path / "agent" / "recordings").glob("*.json"))[:2]:
        (tmp_path / "replays" / f"{path.stem}.html").touch()
    return tmp_path


def configured(folders: Path) -> ConfigDict:
    """A report of everything that lies in `folders`."""
    lists = {
        "replays": ["replays"],
        "tests": ["tests", "more"],
        "evaluations": ["played", "one", "two"],
        "yardsticks": ["three"],
    }
    values = {key: ", ".join(str(folders / name) for name in names) for key, names in lists.items()}
    values |= {f"{name}.dir": str(folders / name) for name in ("agent", "language", "text")}
    return load_config(
        "report", "smoke", {**values, "dataset_dir": str(folders / "dataset"), "title": "All"}
    )


def test_a_page_has_a_section_for_each_folder(folders: Path) -> None:
    config = configured(folders)

    report.check(config, folders / "out")
    code = report.run(config, folders / "out")

    page = (folders / "out" / "report.html").read_text()
    assert code is None
    assert re.findall(r'<section id="([^"]+)"', page) == [
        "glance", "evaluation", "tests", "text", "hacking", "training", "reward", "language", "messages", "episodes",
        "training-games", "dataset", "provenance",
    ]  # fmt: skip


def test_a_run_of_another_stage_is_refused(folders: Path) -> None:
    config = load_config("report", "smoke", {"agent.dir": str(folders / "text")})

    message = "must be a run of train_agent; it is one of train_text"
    with pytest.raises(UserError, match=rf"^config\.agent\.dir='.*text': {message}$"):
        report.check(config, folders / "out")


def test_evaluations_are_named_by_their_players(folders: Path) -> None:
    report.run(configured(folders), folders / "out")

    numbers = json.loads((folders / "out" / "report.json").read_text())
    assert set(numbers["evaluations"]) == {"agent", "other", "other 2", "fixed shares"}
    assert {difference["first"] for difference in numbers["differences"]} == {"agent"}


def test_equal_names_of_tested_players_are_numbered(folders: Path) -> None:
    report.run(configured(folders), folders / "out")

    page = (folders / "out" / "report.html").read_text()
    assert "clone: success" in page
    assert "clone 2: success" in page


def test_games_that_can_be_watched_are_linked(folders: Path) -> None:
    report.run(configured(folders), folders / "out")

    page = (folders / "out" / "report.html").read_text()
    assert '<a href="../played/recordings/episode-00003.html">watch</a>' in page
    assert '<a href="../replays/step-' in page


def test_a_file_of_ones_own_is_no_player(folders: Path) -> None:
    (folders / "played" / "recordings" / "episode-00003-copy.html").touch()

    report.run(configured(folders), folders / "out")

    assert "copy" not in (folders / "out" / "report.html").read_text()


def test_numbers_of_all_evaluations_are_printed(
    folders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")

    report.run(configured(folders), folders / "out")

    printed = capsys.readouterr().out
    assert "agent beside other beside other 2 beside fixed shares" in printed
    assert "means; brackets: 95 % intervals" in printed


@pytest.mark.parametrize(
    ("environment", "measures", "shown"),
    [
        ("NetHackScore-v1", "", True),
        ("gym:Mine-v0", "", False),
        ("mine:make_spec", "", False),
        ("gym:Mine-v0", "-dlvl", True),
        ("NetHackScore-v1", "+scout", False),
    ],
)
def test_what_an_environment_counts_is_progress_where_it_is_known_or_named(
    folders: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    environment: str,
    measures: str,
    shown: bool,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("one", "two"):
        plan = json.loads((folders / name / "evaluation.json").read_text())["plan"] | {
            "environment": environment
        }
        rows = evaluation_rows(6, 0.0, 1)
        summary, _ = evaluation_tables.summarise(plan, rows)
        evaluation_files.write_summary(folders / name, summary, rows)
        journal = "".join(json.dumps(row) + "\n" for row in rows)
        (folders / name / evaluation_files.JOURNAL).write_text(journal)
    evaluations = f"{folders / 'one'},{folders / 'two'}"
    config = load_config("report", "smoke", {"evaluations": evaluations, "measures": measures})

    report.check(config, folders / "out")
    report.run(config, folders / "out")

    assert ("dungeon level" in capsys.readouterr().out) == shown


@pytest.mark.parametrize("measures", ["dlvl", "+dlvl,-"])
def test_a_measure_without_a_direction_is_refused(folders: Path, measures: str) -> None:
    evaluations = str(folders / "one")
    config = load_config("report", "smoke", {"evaluations": evaluations, "measures": measures})

    with pytest.raises(UserError, match=r"^config\.measures=.*\+NAME if more of it is better"):
        report.run(config, folders / "out")


def test_a_measure_of_no_episode_is_refused(folders: Path) -> None:
    evaluations = str(folders / "one")
    config = load_config("report", "smoke", {"evaluations": evaluations, "measures": "+deth"})

    with pytest.raises(UserError, match=r"^config\.measures='deth': .*return, .*dlvl"):
        report.run(config, folders / "out")


def test_an_agent_that_does_not_lead_ends_with_1(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(folders)
    config.evaluations = f"{folders / 'three'}, {folders / 'one'}"
    config.yardsticks = ""
    config.first_must_lead = True

    code = report.run(config, folders / "out")

    assert code == 1
    line = "first_must_lead: fixed shares is not clearly better than agent"
    assert line in capsys.readouterr().err
