"""A study of runs that exist: what it makes of folders of every kind, which runs count once, and
which claims their games carry.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.ilql import evaluate_text
from motif_jax.play import evaluation_files, messages
from motif_jax.play.messages import MessageTally
from motif_jax.reports import finished_runs, run_study
from motif_jax.reports.study import StudyRuns
from motif_jax.reports.study_config import StudyConfig
from motif_jax.schema import read_section
from tests import browser
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation
from tests.published.evaluation_logs_test import write_log as write_evaluation_log
from tests.published.glam_results_test import write_log
from tests.reward_fixtures import load_config

# As two methods, and as two runs of one.
LISTS = ("a={0}; b={1}", "a={0},{1}")
GAMES = 40


def configured(**changes: object) -> ConfigDict:
    return load_config("study", "", {"resamples": 50, **changes})


def read(**changes: object) -> StudyRuns:
    return finished_runs.read(read_section(StudyConfig, configured(**changes)))


def evaluations(folder: Path, *names: str, policy: str = "random", games: int = 8) -> list[Path]:
    """Evaluations of the same games, with numbers of their own."""
    for number, name in enumerate(names):
        write_evaluation(folder / name, policy, evaluation_rows(games, 0.0, number))
    return [folder / name for name in names]


def write_training(
    folder: Path, reward: dict[str, Any] | None = None, task: str = "NetHackScore-v1"
) -> Path:
    write_agent_run(folder, episodes=24, seed=len(folder.name))
    config = {"stage": "train_agent", "environment": {"name": task}, "reward": reward or {}}
    run_folder.write_config(folder, config)
    return folder


@pytest.fixture(autouse=True)
def no_charts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are left out of the page: they take seconds."""
    if request.node.get_closest_marker("browser") is None:
        monkeypatch.setattr("motif_jax.display.charts.figure", lambda plot: f"<svg>{plot.title}")
        monkeypatch.setattr("motif_jax.display.charts.write", lambda folder, drawn: None)


@pytest.mark.parametrize("other", ["here/../one", "link", "copy"])
@pytest.mark.parametrize("listed", LISTS)
def test_a_run_counts_once(tmp_path: Path, other: str, listed: str) -> None:
    (one,) = evaluations(tmp_path, "one")
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(one)
    shutil.copytree(one, tmp_path / "copy")

    with pytest.raises(UserError, match=rf"^config.runs: .* is {one} under a: a run counts once$"):
        read(runs=listed.format(one, tmp_path / other))


def test_two_evaluations_of_one_training_are_no_two_runs(tmp_path: Path) -> None:
    write_agent_run(tmp_path / "agent", episodes=5)
    one, two = evaluations(tmp_path, "one", "two", policy=str(tmp_path / "agent"))

    with pytest.raises(UserError, match=r"both evaluate .*agent: a training counts once"):
        read(runs=f"a={one},{two}")


def test_two_evaluations_of_one_training_are_two_methods(tmp_path: Path) -> None:
    write_agent_run(tmp_path / "agent", episodes=5)
    one, two = evaluations(tmp_path, "one", "two", policy=str(tmp_path / "agent"))

    (methods,) = read(runs=f"sampled={one}; greedy={two}").tables.values()

    assert list(methods) == ["sampled", "greedy"]


def test_evaluations_of_a_random_player_are_two_runs(tmp_path: Path) -> None:
    one, two = evaluations(tmp_path, "one", "two")

    (methods,) = read(runs=f"a={one},{two}").tables.values()

    assert list(methods["a"]) == [str(one), str(two)]


def test_agents_of_one_name_in_two_projects_are_two_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for number, project in enumerate(("one", "two")):
        write_agent_run(tmp_path / project / "runs" / "agent", episodes=5)
        folder = tmp_path / project / "runs" / "eval"
        write_evaluation(folder, "runs/agent", evaluation_rows(8, 0.0, number))
        (folder / "versions.json").write_text(json.dumps({"directory": str(tmp_path / project)}))
        folders.append(str(folder))

    # Wherever they are compared.
    for here in (tmp_path, tmp_path / "one"):
        monkeypatch.chdir(here)
        assert read(runs=f"a={','.join(folders)}").tables


@pytest.mark.parametrize("listed", LISTS)
@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ({"dir": "runs/a"}, {"dir": "runs/b"}, r"dir runs/a and runs/b"),
        ({"kind": "motif"}, {"kind": "ranking"}, r"kind motif and ranking"),
        pytest.param(
            {"kind": "classification"},
            {"kind": "classification"},
            r"dir .*one and .*two",
            id="each run learns its own",
        ),
    ],
)
def test_what_different_rewards_pay_trainings_is_not_compared(
    tmp_path: Path, listed: str, first: dict[str, Any], second: dict[str, Any], difference: str
) -> None:
    runs = write_training(tmp_path / "one", first), write_training(tmp_path / "two", second)

    message = rf"^config\.measures=intrinsic_return: .*one and .*two were trained with different rewards \(.*{difference}.*\): evaluate"
    with pytest.raises(UserError, match=message):
        read(runs=listed.format(*runs), measures="intrinsic_return")
    assert read(runs=listed.format(*runs), measures="return").trainings


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"dir": "runs/a"}, {"dir": "./runs/../runs/a"}, id="a folder by two names"),
        pytest.param(
            {"extrinsic_coefficient": 0.0}, {"extrinsic_coefficient": 1.0}, id="coefficients"
        ),
    ],
)
def test_what_equal_rewards_pay_trainings_is_compared(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> None:
    runs = write_training(tmp_path / "one", first), write_training(tmp_path / "two", second)

    assert read(runs=LISTS[0].format(*runs), measures="intrinsic_return").trainings


def test_what_different_rewards_pay_games_is_not_compared(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_evaluation(tmp_path / name, name, evaluation_rows(4, 0.0, 1), {"dir": f"runs/{name}"})
    runs = f"a={tmp_path / 'one'}; b={tmp_path / 'two'}"

    message = r"config\.measures=intrinsic_return: .*one and .*two were rated by different rewards"
    with pytest.raises(UserError, match=message):
        read(runs=runs, measures="intrinsic_return")
    with pytest.raises(UserError, match=message.replace("measures", "claims")):
        read(runs=runs, claims="a > b: intrinsic_return")
    assert read(runs=runs, measures="return").tables


@pytest.fixture
def folders_of_every_kind(tmp_path: Path) -> Path:
    """Evaluations, trainings, files of published tools."""
    for name in ("run", "again"):
        write_training(tmp_path / name)
    write_log(tmp_path / "log")
    np.save(tmp_path / "returns.npy", np.array([0.0, 0.5, 2.0, 0.0]))
    numbers = {"return": 0.0, "token_return": 0.0, "entropy": 0.25}
    rows = [
        {**numbers, "dialogue": {"texts": ("a", "b"), "rewards": (reward, None)}}
        for reward in (0.5, -1.0)
    ]
    evaluate_text.write_published_log(tmp_path / "log.pkl", rows, {})
    steps = np.array([1e3, 4e5])
    curves = {"theirs": {"motif": ([steps] * 2, [np.array([1.0, 9.0]), np.array([3.0, 8.0])])}}
    (tmp_path / "motif_results.pkl").write_bytes(pickle.dumps(curves))
    evaluations(tmp_path, "one", "two", "three")
    return tmp_path


def of_every_kind(folder: Path, **changes: object) -> ConfigDict:
    methods = {
        "one": ["one"],
        "two": ["two", "three"],
        "ours": ["run", "again"],
        "theirs": ["log", "returns.npy"],
        "text": ["log.pkl"],
    }
    parts = [
        f"{name}={','.join(str(folder / file) for file in files)}"
        for name, files in methods.items()
    ]
    values = {
        "runs": "; ".join(parts),
        "published": str(folder / "motif_results.pkl"),
        "published_tasks": " theirs = NetHackScore-v1",
    }
    return configured(**values | changes)


def test_folders_of_every_kind_stand_side_by_side(folders_of_every_kind: Path) -> None:
    out = folders_of_every_kind / "out"
    config = of_every_kind(folders_of_every_kind)
    run_study.check(config, out)

    code = run_study.run(config, out)

    page = (out / "study.html").read_text()
    head, _, *rows = (out / "study.md").read_text().partition("| NetHackScore-v1")[2].splitlines()
    assert code is None
    assert head == " | runs | return |"
    assert [row.split("|")[1:3] for row in rows[:4]] == [
        [" one ", " 1 "], [" two ", " 2 "], [" theirs ", " 1 "], [" text ", " 1 "],
    ]  # fmt: skip
    assert rows[2].startswith("| theirs | 1 | 0.25 [0, 2] ▼ |"), "the middle half of 0, 0, 0.5, 2"
    assert re.findall(r'<section id="([^"]+)"', page) == [
        "methods-0", "curves", "efficiency", "provenance",
    ]  # fmt: skip
    assert "Dashed: published results." in page
    assert page.count("<svg>NetHackScore-v1") == 1, "published curves stand beside ours"


def test_a_page_that_fails_leaves_the_earlier_one(
    folders_of_every_kind: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = folders_of_every_kind / "out"
    config = of_every_kind(folders_of_every_kind)
    run_study.run(config, out)
    earlier = {path.name: path.read_bytes() for path in out.glob("*.*")}

    with pytest.raises(KeyError, match="glory"):
        run_study.run(of_every_kind(folders_of_every_kind, claims="one > two: glory"), out)

    assert {path.name: path.read_bytes() for path in out.glob("*.*")} == earlier


def test_entropies_that_are_not_finite_are_not_compared(tmp_path: Path) -> None:
    write_evaluation_log(tmp_path / "log.pkl", [1.0, 2.0], [0.5, float("nan")])

    (methods,) = read(runs=f"a={tmp_path / 'log.pkl'}").tables.values()

    assert [list(numbers) for numbers in methods["a"].values()] == [["return"]]


def test_a_published_log_is_of_the_task_beside_it(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log")
    one = write_training(tmp_path / "one", task="BabyAI-GoToLocal-v0")
    other = write_training(tmp_path / "other", task="NetHackScore-v1")

    found = read(runs=f"ours={one}; theirs={log}", measures="return,success")

    assert [(run.method, run.task) for run in found.trainings] == [
        ("ours", "BabyAI-GoToLocal-v0"),
        ("theirs", "BabyAI-GoToLocal-v0"),
    ]
    assert all({"return", "success"} <= run.curves.keys() for run in found.trainings)
    assert [run.task for run in read(runs=f"theirs={log}").trainings] == ["published"]
    with pytest.raises(UserError, match=r"log does not say its task: .* not of BabyAI.*, NetHack"):
        read(runs=f"ours={one},{other}; theirs={log}")


def test_games_are_pairs_where_all_runs_played_the_same(tmp_path: Path) -> None:
    one, two = evaluations(tmp_path, "one", "two")
    (fewer,) = evaluations(tmp_path, "fewer", games=7)

    assert read(runs=f"a={one}; b={two}").games_are_pairs == {"NetHackScore-v1": True}
    assert read(runs=f"a={one}; b={fewer}").games_are_pairs == {"NetHackScore-v1": False}


@pytest.fixture
def two_goals(tmp_path: Path) -> str:
    """Evaluations of the same games: 'combat' kills two more in each, 'gold' gathers ten more in
    half of them.
    """
    # What a game has to kill: it differs more than the agents do.
    newts = np.random.default_rng(0).poisson(20, GAMES)
    for name in ("combat", "gold"):
        rows = evaluation_rows(GAMES, 0.0, 1)
        for game, row in enumerate(rows):
            row["kills"] = float(newts[game]) + (2.0 if name == "combat" else 0.0)
            row["deaths"] = float(game % 4 > 0)
            heap = 14 if name == "gold" and game % 2 == 0 else 4
            row["messages"] = messages.pack([MessageTally(f"$ - {heap} gold pieces.", 1)])
        write_evaluation(tmp_path / name, name, rows)
    return f"combat={tmp_path / 'combat'}; gold={tmp_path / 'gold'}"


def test_claims_that_the_games_carry_hold(two_goals: str, tmp_path: Path) -> None:
    claims = "combat > gold: kills; gold > combat: gathered"
    config = configured(runs=two_goals, measures="kills,gathered,deaths", claims=claims)

    code = run_study.run(config, tmp_path / "out")

    text = (tmp_path / "out" / "study.md").read_text()
    assert code is None
    # All games differ by exactly two: the games' own differences cancel.
    assert "* combat > gold: kills: **holds**, 2 [2, 2]." in text
    assert "* gold > combat: gathered: **holds**, 5 [" in text


def test_a_claim_that_games_do_not_carry_ends_with_1(two_goals: str, tmp_path: Path) -> None:
    # Kills differ by 2 in each game.
    claims = "combat > gold + 1.5: kills; combat > gold + 2: kills; combat > gold: deaths"
    config = configured(runs=two_goals, measures="kills", claims=claims)

    code = run_study.run(config, tmp_path / "out")

    verdicts = re.findall(r"\*\*(.*?)\*\*", (tmp_path / "out" / "study.md").read_text())
    assert code == 1
    assert verdicts == ["holds", "does not hold", "does not hold"]


def test_claims_about_several_tasks_are_refused(two_goals: str, tmp_path: Path) -> None:
    rows = evaluation_rows(4, 0.0, 1)
    summary = write_evaluation(tmp_path / "other", "random", rows)
    plan = {**summary["plan"], "environment": "NetHackStaircase-v1"}
    evaluation_files.write_summary(tmp_path / "other", {**summary, "plan": plan}, rows)
    runs = f"{two_goals}; other={tmp_path / 'other'}"

    with pytest.raises(UserError, match=r"^config\.claims=.* \(the methods in the tables\)"):
        run_study.run(configured(runs=runs, claims="combat > gold: return"), tmp_path / "out")


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_shows_runs_side_by_side(two_goals: str, tmp_path: Path) -> None:
    browser.require_browser()
    training = write_training(tmp_path / "training")
    config = configured(
        runs=f"{two_goals}; training={training}", measures="gathered,return", claims="gold > combat: gathered",
    )  # fmt: skip
    run_study.run(config, tmp_path / "out")
    with browser.open_browser() as driver:
        driver.get(f"file://{tmp_path}/out/study.html")
        methods = {row[0]: row[1:] for row in browser.rows(driver, "table-0")}
        assert methods["combat"][1].startswith("4 [")
        assert methods["gold"][1].endswith("▲")
        for width, dark in ((420, False), (1400, True)):
            browser.check_look(driver, tmp_path / f"study-{width}.png", width, dark)
