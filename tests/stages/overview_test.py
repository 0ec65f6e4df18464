"""The page of a folder of runs: what state each is in, and that it follows runs that go on."""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from motif_jax.reports import overview
from motif_jax.stages import overview as stage
from motif_jax.support.errors import UserError
from motif_jax.support.files import FolderLock, atomic_write_json
from tests import browser
from tests.made_up_runs import HOSTILE, evaluation_rows, write_agent_run, write_evaluation
from tests.processes import Program, ended, wait_until
from tests.reward_fixtures import load_config


def configure(folder: Path, **config: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A whole agent, one that was stopped, an evaluation, a report about the first, a damaged run, and files of none."""
    root = tmp_path / "runs"
    for name, total in (("agent", 496_000), ("half", 992_000)):
        write_agent_run(root / "group" / name, episodes=2)
        configure(root / "group" / name, stage="train_agent", train_for_env_steps=total)
        with open(root / "group" / name / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"step": 496_000, "time": 1.0, "episode/return": 2.5}) + "\n")
            file.write(json.dumps({"step": 496_000, "time": 1.0, "episode/return": 7.25}) + "\n")
    write_evaluation(root / "games", "agent", evaluation_rows(4, 0.0, 1))
    configure(root / "games", stage="evaluate")
    configure(root / "page", stage="report", agent={"dir": str(root / "group" / "agent")}, evaluations="")
    (root / "page" / "report.html").write_text("a report")
    (root / "broken").mkdir()
    (root / "broken" / "config.json").write_text("{torn")
    (root / "group" / "agent" / "checkpoints" / "5").mkdir(parents=True)
    configure(root / "group" / "agent" / "checkpoints" / "5", stage="none")
    (root / "notes").mkdir()
    return root


def states(root: Path) -> dict[str, overview.RunState]:
    return {str(run.folder.relative_to(root)): run for run in overview.find(root)}


def test_what_state_runs_are_in(runs: Path) -> None:
    found = states(runs)
    assert {name: run.state for name, run in found.items()} == {
        "group/agent": "whole", "group/half": "stopped", "games": "whole", "page": "whole", "broken": "damaged",
    }  # fmt: skip
    assert "config.json is damaged" in found["broken"].trouble
    half = found["group/half"]
    assert half.done == 0.5
    assert half.metric == "episode/return"
    assert half.curve.y[-1] == 7.25
    with FolderLock(runs / "group" / "half"):
        assert states(runs)["group/half"].state == "running"
    assert states(runs)["group/half"].state == "stopped"


def test_what_says_that_a_stage_is_done(tmp_path: Path) -> None:
    """Some say it in their file, some by having one; of the others nobody knows."""
    root = tmp_path / "runs"
    for name, finished in (("asked", True), ("asking", False)):
        configure(root / name, stage="annotate")
        (root / name / "summary.json").write_text(json.dumps({"finished": finished}))
    configure(root / "votes", stage="train_upvote")
    (root / "votes" / "summary.json").write_text("{}")
    configure(root / "export", stage="export_reward")
    configure(root / "texts", stage="generate_text")
    configure(root / "foreign", stage="train_reward")
    (root / "foreign" / "checkpoints" / "3").mkdir(parents=True)
    (root / "foreign" / "import.json").write_text("{}")
    configure(root / "votes" / "model", hidden_size=8)
    assert {name: run.state for name, run in states(root).items()} == {
        "asked": "whole", "asking": "stopped", "votes": "whole", "export": "stopped", "texts": "at rest", "foreign": "whole",
    }  # fmt: skip


def test_a_run_may_be_called_as_what_lies_in_one(tmp_path: Path) -> None:
    """As the first of the README's commands does: runs/data, in which there is a folder of that name."""
    for folder in ("data", "data/data/part", "info/tokens", "info/tokens/profile/deep"):
        configure(tmp_path / folder, stage="collect")
    assert set(states(tmp_path)) == {"data", "info/tokens"}


@pytest.mark.parametrize("name", ["evaluate", "evaluate_text"])
def test_an_evaluation_continued_to_more_episodes_is_not_whole(name: str, tmp_path: Path) -> None:
    write_evaluation(tmp_path / "games", "agent", evaluation_rows(4, 0.0, 1))
    for episodes, state in ((4, "whole"), (40, "stopped"), (2, "stopped")):
        configure(tmp_path / "games", stage=name, episodes=episodes)
        assert states(tmp_path)["games"].state == state


def test_folders_that_a_config_names_keep_their_names(tmp_path: Path) -> None:
    reward, agent, other = (tmp_path / name for name in ("lr=1e-4", "a,b;c=d", "other"))
    configure(tmp_path / "report", stage="report", reward={"dir": str(reward)}, agent={"dir": str(agent)})
    configure(tmp_path / "games", stage="evaluate", policy=str(agent), agent={"dir": None})
    configure(tmp_path / "random", stage="evaluate", policy="random", agent={"dir": str(other)})
    configure(tmp_path / "text", stage="evaluate_text", agent=str(other), policy=None)
    configure(tmp_path / "ranks", stage="rank_text", agents=f"{reward}, {other}")
    configure(tmp_path / "compare", stage="compare", methods=f"a={reward},{other}; b = {tmp_path}")
    configure(tmp_path / "card", stage="model_card", model=str(agent), evaluations=f"{reward},{other}")
    assert {name: set(run.about) for name, run in states(tmp_path).items()} == {
        "report": {reward, agent}, "games": {agent}, "random": {other}, "text": {other}, "ranks": {reward, other},
        "compare": {reward, other, tmp_path}, "card": {agent, reward, other},
    }  # fmt: skip


def test_reports_are_linked_whatever_their_folders_are_called(tmp_path: Path) -> None:
    configure(tmp_path / "lr:1%#2?", stage="report")
    (tmp_path / "lr:1%#2?" / "report.html").touch()
    config = load_config("overview", "")
    config.runs = str(tmp_path)
    assert stage.run(config, None) is None
    assert 'href="lr%3A1%25%232%3F/report.html"' in (tmp_path / "overview.html").read_text()


def test_metrics_are_read_again_only_where_they_have_changed(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, render, shown = overview.read_metrics, stage.overview_page.render, []
    was_read: list[str] = []
    monkeypatch.setattr(
        overview, "read_metrics", lambda folder: (was_read.append(folder.name), read(folder))[1]
    )
    config = load_config("overview", "")
    config.runs, config.refresh_seconds = str(runs), 0.001
    with contextlib.ExitStack() as running:
        running.enter_context(FolderLock(runs / "group" / "half"))

        def rendered(found: list[overview.RunState], *given: object) -> str:
            shown.append({run.folder.name: run for run in found}["half"].curve.y[-1])
            with open(runs / "group" / "half" / "metrics.jsonl", "a") as file:
                file.write(json.dumps({"step": 497_000, "time": 2.0, "episode/return": len(shown)}) + "\n")
            if len(shown) == 3:
                running.close()
            return render(found, *given)

        monkeypatch.setattr(stage.overview_page, "render", rendered)
        assert stage.run(config, None) is None
    assert shown == [7.25, 1, 2, 3]
    assert was_read.count("agent") == 1
    assert was_read.count("half") == 4


def test_files_that_come_and_go_are_no_matter(runs: Path) -> None:
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            atomic_write_json(runs / "games" / "plan.json", {})

    with ThreadPoolExecutor(1) as beside:
        writing = beside.submit(write)
        try:
            for _ in range(150):
                assert states(runs)["games"].state == "whole"
        finally:
            done.set()
        writing.result()


def test_looking_never_keeps_a_run_from_starting(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who locks a folder for a moment to see whether it can ends the run that starts in that moment."""
    with FolderLock(runs / "group" / "half"):
        monkeypatch.setattr(fcntl, "flock", lambda *_: pytest.fail("a folder was locked"))
        assert states(runs)["group/half"].state == "running"
    assert states(runs)["group/half"].state == "stopped"


def test_the_page_is_written_until_the_last_run_ends(runs: Path) -> None:
    program = (
        "import signal, sys\nfrom pathlib import Path\nfrom motif_jax.support.files import FolderLock\n"
        "with FolderLock(Path(sys.argv[1])):\n    print('held', flush=True)\n    signal.pause()\n"
    )
    held = [sys.executable, "-c", program, str(runs / "group" / "half")]
    watch = [sys.executable, "-m", "motif_jax.launch", "--config=configs/overview.py"]
    watch += [f"--config.runs={runs}", "--config.refresh_seconds=0.2"]
    page = runs / "overview.html"
    run = Program(held, runs.parent / "held.log", {})
    with ended([run]):
        wait_until(lambda: run.text() == "held\n", "the run")
        watching = Program(watch, runs.parent / "watching.log", {})
        with ended([watching]):
            wait_until(lambda: "5 runs, 1 of them running" in watching.text(), "the page")
            assert 'http-equiv="refresh"' in page.read_text()
            with open(runs / "group" / "half" / "metrics.jsonl", "a") as file:
                file.write(json.dumps({"step": 497_000, "time": 2.0, "episode/return": 1234.0}) + "\n")
            wait_until(lambda: "1.234k" in page.read_text(), "the page follows the run")
            run.send(signal.SIGKILL)
            assert watching.wait() == 0, watching.text()
    assert 'http-equiv="refresh"' not in page.read_text()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    config = load_config("overview", "")
    config.runs = str(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"config.runs="):
        stage.check(config, None)


@pytest.mark.browser
def test_the_page_links_reports_and_holds_its_looks(runs: Path) -> None:
    browser.require_browser()
    configure(runs / "x<b>y", stage=HOSTILE)
    config = load_config("overview", "")
    config.runs = str(runs)
    assert stage.run(config, None) is None
    with browser.open_browser() as driver:
        driver.get(f"file://{runs}/overview.html")
        shown = {row[0]: row[1:] for row in browser.rows(driver, "runs")}
        assert set(shown) == {"group/agent", "group/half", "games", "page", "broken", "x<b>y"}
        assert shown["x<b>y"][0] == HOSTILE
        assert shown["group/half"][1:4] == ["stopped", "50 %", "7.25\nepisode/return"]
        assert "page/report" in shown["group/agent"][-1]
        assert len(driver.find_elements("css selector", "svg.spark path")) == 2
        for width, dark in ((420, True), (1400, False)):
            browser.check_look(driver, runs / f"overview-{width}.png", width, dark)
        link = next(
            each for each in driver.find_elements("css selector", "#runs a") if each.text == "page/report"
        )
        driver.get(link.get_attribute("href"))
        assert driver.find_element("tag name", "body").text == "a report"


def test_what_a_killed_writer_left_goes_but_not_that_of_one_that_writes(runs: Path) -> None:
    config = load_config("overview", "")
    config.runs, config.refresh_seconds = str(runs), 0.0
    left = runs / f".{stage.PAGE}.abc.tmp"
    left.touch()
    with FolderLock(runs, f".{stage.PAGE}.lock"):
        assert stage.run(config, None) is None
        assert left.exists(), "another one may be writing it"
    assert stage.run(config, None) is None
    assert not left.exists()
