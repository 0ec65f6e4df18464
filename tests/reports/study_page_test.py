"""The page of a study, of trainings whose curves are made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.reports import study, study_page
from motif_jax.reports.efficiency import Learned
from motif_jax.reports.study_page import StudyData

TABLE = study.MethodTable(
    ["doorkey", "runs", "return"],
    [["task", "2", "0.1 [0, 0.2]"], ["both", "1", "1"]],
    "compared with task",
)


def learned(method: str, value: float) -> Learned:
    steps = 100.0 * np.arange(60)
    return Learned(method, "gym:Mine-v0", {"return": Curve(steps, np.full(60, value))})


DRAWN = StudyData([TABLE], trainings=[learned("task", 0.0)])
WITHOUT_CURVES = StudyData([TABLE])


def test_the_page_has_tables_claims_and_each_methods_curve(tmp_path: Path) -> None:
    claims = "Claims (95 %):\n\n* both > task: return: **holds**, 0.9 [0.8, 1]."
    trainings = [learned("task", 0.0), learned("task", 0.0), learned("both", 1.0)]

    path = study_page.write(tmp_path, StudyData([TABLE], claims, trainings), ["return"])

    page = path.read_text(encoding="utf-8")
    assert path == (tmp_path / "study.html").resolve()
    assert "0.1 [0, 0.2]" in page
    assert "<li>both &gt; task: return: holds, 0.9 [0.8, 1].</li>" in page
    assert "task (n = 2)" in page
    assert "both (n = 1)" in page
    assert "| gym:Mine-v0 | both | 1 | 5,900 | 1 [n/a] |" in (tmp_path / "study.md").read_text()
    assert [picture.suffix for picture in sorted((tmp_path / "plots").glob("[!.]*"))] == [
        ".pdf",
        ".png",
    ]


@pytest.mark.parametrize(
    ("folder", "title"),
    [
        ("study", "Study"),
        ("judge_study", "Judge_study"),
        ("Studying", "Studying"),
        ("seeds", "Study seeds"),
    ],
)
def test_the_title_says_study_once(tmp_path: Path, folder: str, title: str) -> None:
    path = study_page.write(tmp_path / folder, WITHOUT_CURVES, ["return"])

    assert f"<title>{title}</title>" in path.read_text(encoding="utf-8")
    assert path.with_suffix(".md").read_text().startswith(f"# {title}\n")


def test_a_measure_that_trainings_lack_has_no_chart(tmp_path: Path) -> None:
    path = study_page.write(tmp_path, DRAWN, ["judged"])

    assert "Learning curves" not in path.read_text(encoding="utf-8")


def test_the_page_names_trainings_without_a_curve(tmp_path: Path) -> None:
    sentence = "Trainings whose folders are not here have no curve: task (2 of 2)."
    data = StudyData([TABLE], trainings=[learned("both", 1.0)], without_curve=sentence)

    path = study_page.write(tmp_path, data, ["return"])

    assert sentence in path.read_text(encoding="utf-8")


def test_a_users_folder_of_plots_keeps_its_files(tmp_path: Path) -> None:
    mine = tmp_path / "plots" / "figure.png"
    mine.parent.mkdir()
    mine.write_text("mine")

    for _ in range(2):
        study_page.write(tmp_path, DRAWN, ["return"])

    assert mine.read_text() == "mine"
    assert len(list(mine.parent.iterdir())) == 3


def test_plots_of_an_earlier_page_go(tmp_path: Path) -> None:
    study_page.write(tmp_path, DRAWN, ["return"])

    study_page.write(tmp_path, WITHOUT_CURVES, ["return"])

    assert not (tmp_path / "plots").exists()


def test_plots_that_a_kill_left_go_with_the_next_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_page.write(tmp_path, DRAWN, ["return"])

    def remove_the_first_file(folder: Path, **_: object) -> None:
        for path in sorted(Path(folder).glob("*"))[:1]:
            path.unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("motif_jax.display.page.shutil.rmtree", remove_the_first_file)
        with pytest.raises(KeyboardInterrupt):
            study_page.write(tmp_path, DRAWN, ["return"])
    study_page.write(tmp_path, WITHOUT_CURVES, ["return"])

    assert not list(tmp_path.glob("**/*.png"))
    assert not list(tmp_path.glob("*plots*"))
