"""The page of a study, of trainings whose curves are made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.reports import study
from motif_jax.reports.curves import Learned
from motif_jax.reports.study import StudyRuns
from motif_jax.reports.study_config import StudyConfig

METHODS = {"task": {1: {"return": [0.0, 0.25]}}, "both": {1: {"return": [1.0, 2.0]}}}


def study_of(*trainings: Learned, without_curve: str = "") -> StudyRuns:
    return StudyRuns(
        {"doorkey": METHODS}, {"doorkey": True}, METHODS, list(trainings), without_curve
    )


def learned(method: str, value: float) -> Learned:
    steps = 100.0 * np.arange(60)
    return Learned(method, "gym:Mine-v0", {"return": Curve(steps, np.full(60, value))})


def write(folder: Path, runs: StudyRuns, **config: str) -> Path:
    """The page of the runs below `folder`."""
    shown = study.page_of(StudyConfig(resamples=50, **config), runs)
    return study.write(folder, shown)


DRAWN = study_of(learned("task", 0.0))
WITHOUT_CURVES = study_of()


def test_the_page_has_tables_claims_and_each_methods_curve(tmp_path: Path) -> None:
    trainings = [learned("task", 0.0), learned("task", 0.0), learned("both", 1.0)]

    path = write(tmp_path, study_of(*trainings), claims="both > task: return")

    page = path.read_text(encoding="utf-8")
    text = (tmp_path / "study.md").read_text()
    assert path == (tmp_path / "study.html").resolve()
    assert "<td>1.5 [1, 2] ▲</td>" in page
    assert "<li>both &gt; task: return: holds, 1.38 [1, 1.75].</li>" in page
    assert "task (n = 2)" in page
    assert "both (n = 1)" in page
    assert "* both > task: return: **holds**, 1.38 [1, 1.75]." in text
    assert "| both | 1 | 1.5 [1, 2] ▲ |" in text
    assert "| gym:Mine-v0 | both | 1 | 5,900 | 1 [n/a] |" in text
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
    path = write(tmp_path / folder, WITHOUT_CURVES)

    assert f"<title>{title}</title>" in path.read_text(encoding="utf-8")
    assert path.with_suffix(".md").read_text().startswith(f"# {title}\n")


def test_a_measure_that_trainings_lack_has_no_chart(tmp_path: Path) -> None:
    path = write(tmp_path, DRAWN, measures="judged")

    assert "Learning curves" not in path.read_text(encoding="utf-8")


def test_the_page_names_trainings_without_a_curve(tmp_path: Path) -> None:
    sentence = "Trainings whose folders are not here have no curve: task (2 of 2)."
    data = study_of(learned("both", 1.0), without_curve=sentence)

    path = write(tmp_path, data)

    assert sentence in path.read_text(encoding="utf-8")


def test_a_users_folder_of_plots_keeps_its_files(tmp_path: Path) -> None:
    mine = tmp_path / "plots" / "figure.png"
    mine.parent.mkdir()
    mine.write_text("mine")

    for _ in range(2):
        write(tmp_path, DRAWN)

    assert mine.read_text() == "mine"
    assert len(list(mine.parent.iterdir())) == 3


def test_plots_of_an_earlier_page_go(tmp_path: Path) -> None:
    write(tmp_path, DRAWN)

    write(tmp_path, WITHOUT_CURVES)

    assert not (tmp_path / "plots").exists()


def test_plots_that_a_kill_left_go_with_the_next_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, DRAWN)

    def remove_the_first_file(folder: Path, **_: object) -> None:
        for path in sorted(Path(folder).glob("*"))[:1]:
            path.unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("motif_jax.display.page.shutil.rmtree", remove_the_first_file)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, DRAWN)
    write(tmp_path, WITHOUT_CURVES)

    assert not list(tmp_path.glob("**/*.png"))
    assert not list(tmp_path.glob("*plots*"))
