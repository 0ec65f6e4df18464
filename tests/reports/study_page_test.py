"""The page of a study, of trainings whose episodes are made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from motif_jax.reports import study, study_page

TABLE = study.MethodTable(
    ["doorkey", "runs", "return"],
    [["task", "2", "0.1 [0, 0.2]"], ["both", "1", "1"]],
    "compared with task",
)


def write_training(folder: Path, returns: list[float], stage: str = "train_agent") -> Path:
    folder.mkdir()
    config = {"stage": stage, "environment": {"name": "gym:Mine-v0"}}
    (folder / "config.json").write_text(json.dumps(config))
    rows = [{"step": 100 * number, "return": value} for number, value in enumerate(returns)]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_page_has_tables_claims_and_each_methods_curve(tmp_path: Path) -> None:
    task = [write_training(tmp_path / f"task-{seed}", [0.0] * 60) for seed in (1, 2)]
    both = [write_training(tmp_path / "both-1", [1.0] * 60)]
    claims = "Claims (95 %):\n\n* both > task: return: **holds**, 0.9 [0.8, 1]."

    path = study_page.write(tmp_path, [TABLE], claims, {"task": task, "both": both}, ["return"])

    page = path.read_text(encoding="utf-8")
    assert path == (tmp_path / "study.html").resolve()
    assert "0.1 [0, 0.2]" in page
    assert "both &gt; task: return: holds, 0.9 [0.8, 1]." in page
    assert "task (n = 2)" in page
    assert "both (n = 1)" in page
    assert "have no curve" not in page
    assert [picture.suffix for picture in sorted((tmp_path / "plots").glob("[!.]*"))] == [
        ".pdf",
        ".png",
    ]


def test_trainings_elsewhere_and_stages_without_episodes_have_no_curve(tmp_path: Path) -> None:
    text = [write_training(tmp_path / "text-1", [1.0] * 60, stage="train_text")]

    path = study_page.write(
        tmp_path, [TABLE], "", {"task": [tmp_path / "away-1"], "text": text}, ["return"]
    )

    assert "Learning curves" not in path.read_text(encoding="utf-8")


def test_the_page_names_trainings_without_a_curve_beside_the_others(tmp_path: Path) -> None:
    both = write_training(tmp_path / "both-1", [1.0] * 60)
    trainings = {
        "task": [tmp_path / "away-1", tmp_path / "away-2"],
        "both": [both, tmp_path / "away-3"],
    }

    path = study_page.write(tmp_path, [TABLE], "", trainings, ["return"])

    sentence = "Trainings whose folders are not here have no curve: task (2 of 2), both (1 of 2)."
    assert sentence in path.read_text(encoding="utf-8")


def test_a_users_folder_of_plots_keeps_its_files(tmp_path: Path) -> None:
    mine = tmp_path / "plots" / "figure.png"
    mine.parent.mkdir()
    mine.write_text("mine")
    task = {"task": [write_training(tmp_path / "task-1", [0.0] * 60)]}

    for _ in range(2):
        study_page.write(tmp_path, [TABLE], "", task, ["return"])

    assert mine.read_text() == "mine"
    assert len(list(mine.parent.iterdir())) == 3


def test_plots_of_an_earlier_page_go(tmp_path: Path) -> None:
    task = [write_training(tmp_path / "task-1", [0.0] * 60)]
    study_page.write(tmp_path, [TABLE], "", {"task": task}, ["return"])

    study_page.write(tmp_path, [TABLE], "", {"task": [tmp_path / "away"]}, ["return"])

    assert not (tmp_path / "plots").exists()


def test_plots_that_a_kill_left_go_with_the_next_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = [write_training(tmp_path / "task-1", [0.0] * 60)]
    study_page.write(tmp_path, [TABLE], "", {"task": task}, ["return"])

    def remove_the_first_file(folder: Path, **_: object) -> None:
        for path in sorted(Path(folder).glob("*"))[:1]:
            path.unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("motif_jax.display.page.shutil.rmtree", remove_the_first_file)
        with pytest.raises(KeyboardInterrupt):
            study_page.write(tmp_path, [TABLE], "", {"task": task}, ["return"])
    study_page.write(tmp_path, [TABLE], "", {"task": [tmp_path / "away"]}, ["return"])

    assert not list(tmp_path.glob("**/*.png"))
    assert not list(tmp_path.glob("*plots*"))
