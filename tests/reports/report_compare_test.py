"""compare: what it makes of folders of every kind; those that are not what they should be are told,
not left out.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.evaluation import published_log
from motif_jax.reports import compare
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation
from tests.published.glam_results_test import write_log
from tests.reward_fixtures import load_config


def write_training(folder, reward):
    folder.mkdir()
    config = {"stage": "train_agent", "reward": reward, "compat": {}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


# As two methods, and as two runs of one.
LISTS = ("a={0}; b={1}", "a={0},{1}")


def configured(**changes):
    return load_config("compare", "", changes)


def evaluations(folder, *names, policy="random"):
    for number, name in enumerate(names):
        write_evaluation(folder / name, policy, evaluation_rows(8, 0.0, number))
    return [folder / name for name in names]


@pytest.mark.parametrize("other", ["here/../one", "link"])
@pytest.mark.parametrize(
    ("listed", "where"), [("a={0},{1}", "twice under a"), ("a={0}; b={1}", "under a and under b")]
)
def test_a_run_counts_once(tmp_path, other, listed, where):
    evaluations(tmp_path, "one")
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    config = configured(methods=listed.format(tmp_path / "one", tmp_path / other))
    with pytest.raises(
        UserError, match=rf"^config.methods: .* is given {where}.*: a run counts once$"
    ):
        compare.check(config, tmp_path / "out")


def test_two_evaluations_of_one_training_are_no_two_runs(tmp_path):
    write_agent_run(tmp_path / "agent", episodes=5)
    one, two = evaluations(tmp_path, "one", "two", policy=str(tmp_path / "agent"))

    with pytest.raises(UserError, match=r"both evaluate .*agent: a training counts once"):
        compare.check(configured(methods=f"a={one},{two}"), tmp_path / "out")


def test_two_evaluations_of_one_training_are_two_methods(tmp_path):
    write_agent_run(tmp_path / "agent", episodes=5)
    one, two = evaluations(tmp_path, "one", "two", policy=str(tmp_path / "agent"))

    compare.check(configured(methods=f"sampled={one}; greedy={two}"), tmp_path / "out")


def test_evaluations_of_a_random_player_are_two_runs(tmp_path):
    one, two = evaluations(tmp_path, "one", "two")

    compare.check(configured(methods=f"a={one},{two}"), tmp_path / "out")


@pytest.mark.parametrize("listed", LISTS)
@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ({"dir": "runs/a"}, {"dir": "runs/b"}, r"dir runs/a and runs/b"),
        ({"step": 3}, {"step": 4}, r"step 3 and 4"),
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
    tmp_path, listed, first, second, difference
):
    runs = write_training(tmp_path / "one", first), write_training(tmp_path / "two", second)
    config = configured(methods=listed.format(*runs), measure="intrinsic_return")

    message = rf"^config\.measure=intrinsic_return: .*one and .*two were trained with different rewards \({difference}\): evaluate"
    with pytest.raises(UserError, match=message):
        compare.check(config, tmp_path / "out")


@pytest.mark.parametrize("listed", LISTS)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"dir": "runs/a"}, {"dir": "./runs/../runs/a"}, id="a folder by two names"),
        pytest.param(
            {"extrinsic_coefficient": 0.0}, {"extrinsic_coefficient": 1.0}, id="coefficients"
        ),
        ({"kind": "table", "table": "a"}, {"kind": "table", "table": "a", "extrinsic_clip": 1}),
    ],
)
def test_what_equal_rewards_pay_trainings_is_compared(tmp_path, listed, first, second):
    runs = write_training(tmp_path / "one", first), write_training(tmp_path / "two", second)

    compare.check(
        configured(methods=listed.format(*runs), measure="intrinsic_return"), tmp_path / "out"
    )


def test_returns_of_the_task_are_compared_whatever_the_rewards(tmp_path):
    runs = (
        write_training(tmp_path / "one", {"dir": "a"}),
        write_training(tmp_path / "two", {"dir": "b"}),
    )

    compare.check(configured(methods=LISTS[0].format(*runs)), tmp_path / "out")


def test_a_damaged_config_of_a_training_is_named(tmp_path):
    runs = write_training(tmp_path / "one", []), write_training(tmp_path / "two", {})
    config = configured(methods=LISTS[0].format(*runs), measure="intrinsic_return")

    with pytest.raises(UserError, match=r"config.json is damaged \(reward or compat\)"):
        compare.check(config, tmp_path / "out")


@pytest.fixture
def folders_of_every_kind(tmp_path, monkeypatch):
    """Evaluations, trainings, files of published tools; charts are left out of the page, they take
    seconds.
    """
    monkeypatch.setattr("motif_jax.display.charts.figure", lambda plot: f"<svg>{plot.title}</svg>")
    for name in ("run", "again"):
        write_agent_run(tmp_path / name, episodes=24, seed=len(name))
        trained = {"stage": "train_agent", "environment": {"name": "NetHackScore-v1"}}
        (tmp_path / name / "config.json").write_text(json.dumps(trained))
    write_log(tmp_path / "log")
    np.save(tmp_path / "returns.npy", np.array([0.0, 0.5, 2.0, 0.0]))
    numbers = {"return": 0.0, "token_return": 0.0, "entropy": 0.25}
    rows = [
        {**numbers, "dialogue": {"texts": ("a", "b"), "rewards": (reward, None)}}
        for reward in (0.5, -1.0)
    ]
    published_log.write(tmp_path / "log.pkl", rows, {})
    steps = np.array([1e3, 4e5])
    curves = {"theirs": {"motif": ([steps] * 2, [np.array([1.0, 9.0]), np.array([3.0, 8.0])])}}
    (tmp_path / "motif_results.pkl").write_bytes(pickle.dumps(curves))
    evaluations(tmp_path, "one", "two", "three")
    return tmp_path


def of_every_kind(folder, **changes):
    methods = {
        "one": ["one"],
        "two": ["two", "three"],
        "ours": ["run", "again"],
        "theirs": ["log", "returns.npy", "log.pkl"],
    }
    parts = [
        f"{name}={','.join(str(folder / file) for file in files)}"
        for name, files in methods.items()
    ]
    values = {
        "methods": "; ".join(parts),
        "published": str(folder / "motif_results.pkl"),
        "published_tasks": " theirs = NetHackScore-v1",
        "published_task": "NetHackScore-v1",
        "resamples": 20,
        "plots": False,
        "measures": "score, fights",
    }
    return configured(**values | changes)


def test_folders_of_every_kind_stand_side_by_side(folders_of_every_kind):
    out = folders_of_every_kind / "out"

    code = compare.run(of_every_kind(folders_of_every_kind), out)

    numbers = json.loads((out / "comparison.json").read_text())
    page = (out / "comparison.html").read_text()
    assert code is None
    assert numbers["runs"] == {"one": 1, "two": 2, "theirs": 2}
    assert numbers["scores"]["theirs"] == [[0.625], [-0.25]], "the mean of each published file"
    assert re.findall(r'<section id="([^"]+)"', page) == [
        "claims", "aggregates", "differences", "improvement", "profiles", "tasks", "curves", "efficiency", "provenance",
    ]  # fmt: skip
    assert "Dashed: published results, read from motif_results.pkl." in page


def test_a_scale_sets_two_methods_means_to_0_and_1(folders_of_every_kind):
    config = of_every_kind(folders_of_every_kind, normalise_zero="one", normalise_one="two")
    out = folders_of_every_kind / "out"

    compare.run(config, out)

    numbers = json.loads((out / "comparison.json").read_text())
    assert numbers["unit"] == "0: one, 1: two"
    assert np.mean(numbers["scores"]["one"]) == pytest.approx(0)
    assert np.mean(numbers["scores"]["two"]) == pytest.approx(1)


def test_tables_of_an_earlier_comparison_go(folders_of_every_kind):
    out = folders_of_every_kind / "out"
    compare.run(of_every_kind(folders_of_every_kind), out)
    earlier = {path.name for path in out.glob("comparison.*")}

    trainings = f"ours={folders_of_every_kind / 'run'}"
    compare.run(configured(methods=trainings, resamples=20, plots=False), out)

    assert "comparison.json" in earlier
    assert not (out / "comparison.json").exists(), "trainings alone have no scores"


@pytest.mark.parametrize(
    ("folder", "changes", "message"),
    [
        ("run", {"normalise_zero": "a", "normalise_one": "a"}, "normalise_zero='a'"),
        ("one", {"efficiency_steps": 1000}, "efficiency_steps=1000"),
        ("one", {"published_task": "t"}, "published_task='t'"),
        ("one", {"published_tasks": "a=b"}, "published_tasks='a=b'"),
        ("one", {"lexicon.file": "minigrid.yaml"}, "lexicon.file='minigrid.yaml'"),
    ],
)
def test_a_key_that_the_folders_leave_unread_is_refused(
    folders_of_every_kind, folder, changes, message
):
    config = configured(methods=f"a={folders_of_every_kind / folder}", **changes)

    with pytest.raises(UserError, match=rf"^config\.{message}: must be left out without "):
        compare.check(config, folders_of_every_kind / "out")


def test_published_curves_stand_beside_returns_alone(folders_of_every_kind):
    config = of_every_kind(folders_of_every_kind, measure="length")

    with pytest.raises(UserError, match=r"config\.measure='length': must be 'return' with"):
        compare.check(config, folders_of_every_kind / "out")


def test_a_comparison_that_fails_leaves_the_earlier_tables(folders_of_every_kind, monkeypatch):
    out = folders_of_every_kind / "out"
    config = of_every_kind(folders_of_every_kind)
    compare.run(config, out)
    earlier = {path.name: path.read_bytes() for path in out.glob("comparison.*")}

    def fail(*arguments: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("motif_jax.display.page.markdown", fail)
    with pytest.raises(OSError, match="no space"):
        compare.run(config, out)

    assert {path.name: path.read_bytes() for path in out.glob("comparison.*")} == earlier


@pytest.mark.parametrize("kind", ["evaluation", "training"])
def test_a_missing_number_is_named_with_the_available_ones(tmp_path, kind):
    folder = tmp_path / "run"
    if kind == "training":
        write_agent_run(folder, episodes=5)
    else:
        evaluations(tmp_path, "run")

    message = rf"^config\.measure=glory: {folder}\S* has no such number; it has .*return, "
    with pytest.raises(UserError, match=message):
        compare.run(configured(methods=f"a={folder}", measure="glory"), tmp_path / "out")


def test_a_copy_of_an_evaluation_is_no_second_run(tmp_path):
    (one,) = evaluations(tmp_path, "one")
    shutil.copytree(one, tmp_path / "copy")
    config = configured(methods=f"a={one},{tmp_path / 'copy'}")

    with pytest.raises(
        UserError, match=rf"{tmp_path / 'copy'} is a copy of {one}: a run counts once"
    ):
        compare.check(config, tmp_path / "out")


def test_agents_of_one_name_in_two_projects_are_two_trainings(tmp_path, monkeypatch):
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
        compare.check(configured(methods=f"a={','.join(folders)}"), tmp_path / "out")


def test_a_training_counts_once_after_its_project_has_moved(tmp_path, monkeypatch):
    write_agent_run(tmp_path / "old" / "runs" / "agent", episodes=5)
    folders = []
    for number, name in enumerate(("one", "two")):
        folder = tmp_path / "old" / "runs" / name
        write_evaluation(folder, "runs/agent", evaluation_rows(8, 0.0, number))
        (folder / "versions.json").write_text(json.dumps({"directory": str(tmp_path / "old")}))
        folders.append(f"runs/{name}")
    (tmp_path / "old").rename(tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")

    with pytest.raises(UserError, match="both evaluate runs/agent: a training counts once"):
        compare.check(configured(methods=f"a={','.join(folders)}"), tmp_path / "out")
