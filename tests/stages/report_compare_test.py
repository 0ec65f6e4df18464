"""report and compare: folders that are not what they should be are told, not left out."""

from __future__ import annotations

import json

import pytest

from motif_jax.reports import evaluation_files
from motif_jax.stages import compare, report
from motif_jax.support.errors import UserError
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation, write_recordings
from tests.reward_fixtures import load_config, make_dataset, reward_config, train


def configured(stage, **changes):
    config = load_config(stage, "")
    config.update_from_flattened_dict(changes)
    return config


@pytest.mark.parametrize(("key", "stage"), [("agent.dir", "train_agent"), ("reward.dir", "train_reward")])
def test_a_folder_of_another_kind_is_no_run(key, stage, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    config = configured("report", **{key: str(folder)})
    said = rf"config.{key}='.*folder': must be a run of {stage}; it has no config.json"
    with pytest.raises(UserError, match=said):
        report.check(config, tmp_path / "out")
    other = {"train_agent": "train_reward", "train_reward": "train_agent"}[stage]
    (folder / "config.json").write_text(json.dumps({"stage": other}))
    with pytest.raises(UserError, match=rf"must be a run of {stage}; it is one of {other}"):
        report.check(config, tmp_path / "out")
    (folder / "config.json").write_text(json.dumps({"stage": stage}))
    report.check(config, tmp_path / "out")


def test_a_dataset_and_replays_that_are_none(tmp_path):
    with pytest.raises(UserError, match=str(tmp_path)):
        report.check(configured("report", dataset_dir=str(tmp_path)), tmp_path / "out")
    write_agent_run(tmp_path / "agent", episodes=5)
    config = configured("report", **{"agent.dir": str(tmp_path / "agent"), "replays": str(tmp_path)})
    with pytest.raises(UserError, match=r"config.replays=.*: must be a folder with players \(step-\*.html\)"):
        report.check(config, tmp_path / "out")


def test_games_are_linked_whatever_their_folders_are_called(tmp_path):
    write_agent_run(tmp_path / "agent", episodes=8)
    write_recordings(tmp_path / "agent", every=1)
    write_evaluation(tmp_path / "of #1?", "agent", evaluation_rows(4, 0.0, 1))
    for place in (
        "of #1?/recordings/episode-00000.html",
        "players: 5%/step-000000001000-env-00000-episode-000000.html",
    ):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).touch()
    folders = {"agent.dir": "agent", "evaluations": "of #1?", "replays": "players: 5%"}
    config = configured("report", plots=False, **{key: str(tmp_path / name) for key, name in folders.items()})
    report.check(config, tmp_path / "out")
    report.run(config, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert 'href="../of%20%231%3F/recordings/episode-00000.html"' in page
    assert 'href="../players%3A%205%25/step-000000001000-env-00000-episode-000000.html"' in page


@pytest.mark.slow
def test_pictures_of_a_run_are_written(tmp_path):
    write_agent_run(tmp_path / "agent", episodes=50)
    config = configured("report", **{"agent.dir": str(tmp_path / "agent")})
    report.check(config, tmp_path / "out")
    report.run(config, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out" / "plots").iterdir()}
    assert {"metric_speed.png", "metric_policy_lag.pdf", "training_return.png"} <= names
    assert "policy lag" in (tmp_path / "out" / "report.html").read_text()
    assert "Not checked for reward hacking: 10 episodes" in (tmp_path / "out" / "report.md").read_text()
    assert r"\begin{tabular}" in (tmp_path / "out" / "report.tex").read_text()
    assert json.loads((tmp_path / "out" / "report.json").read_text())["headline"]["kind"] == ""


@pytest.mark.extra
@pytest.mark.usefixtures("compiled_quickly")
def test_a_reward_of_more_than_the_message_has_a_page(tmp_path):
    make_dataset(tmp_path / "dataset", pairs=40, glyphs=True)
    network = {"network.status": True, "network.crop": True, "network.embedding_dim": 8}
    reward = train(tmp_path / "reward", reward_config(tmp_path / "dataset", **network))
    write_evaluation(tmp_path / "agent", "agent", evaluation_rows(30, 5.0, 1))
    write_agent_run(tmp_path / "run", episodes=30)
    lines = [json.loads(line) for line in (tmp_path / "run/episodes.jsonl").read_text().splitlines()[:-1]]
    untraced = [json.dumps({**line, "intrinsic_return": None}) + "\n" for line in lines]
    (tmp_path / "run/episodes.jsonl").write_text("".join(untraced))
    folders = {
        "dataset_dir": tmp_path / "dataset",
        "reward.dir": reward,
        "agent.dir": tmp_path / "run",
        "evaluations": tmp_path / "agent",
    }
    config = configured("report", **{key: str(folder) for key, folder in folders.items()})
    report.check(config, tmp_path / "out")
    report.run(config, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "This reward reads message, blstats, glyphs: what it pays depends on more than the message" in page
    assert "The training is not checked for reward hacking: a reward that reads more than the message" in page
    for shown in (
        "share of pairs ordered as the annotator did",
        "what paid most in the evaluation: agent",
        "labels (pairs)",
    ):
        assert shown in page
    for left_out in (
        "most liked",
        "paid first time",
        "Normalised: mean 0",
        "no reward run was given",
    ):
        assert left_out not in page
    against_progress = page.split('<section id="hacking">')[1].split("<section")[0]
    assert "<h3>game score</h3>" in against_progress
    assert "<h3>intrinsic return</h3>" not in against_progress, "a curve of nothing"
    plots = {path.name for path in (tmp_path / "out" / "plots").iterdir()}
    assert "reward_loss.png" in plots
    assert "reward_by_message.png" not in plots


def evaluations(folder, *names, policy="random", games=8):
    for number, name in enumerate(names):
        write_evaluation(folder / name, policy, evaluation_rows(games, 0.0, number))
    return [folder / name for name in names]


@pytest.mark.parametrize("other", ["here/../one", "link"])
@pytest.mark.parametrize(
    ("listed", "where"), [("a={0},{1}", "twice under a"), ("a={0}; b={1}", "under a and under b")]
)
def test_a_run_counts_once(tmp_path, other, listed, where):
    evaluations(tmp_path, "one")
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    config = configured("compare", methods=listed.format(tmp_path / "one", tmp_path / other))
    with pytest.raises(UserError, match=rf"^config.methods: .* is given {where}.*: a run counts once$"):
        compare.check(config, tmp_path / "out")


def test_two_evaluations_of_one_training_are_no_two_runs(tmp_path):
    write_agent_run(tmp_path / "agent", episodes=5)
    one, two = evaluations(tmp_path, "one", "two", policy=str(tmp_path / "agent"))
    with pytest.raises(UserError, match=r"both evaluate .*agent: a training counts once"):
        compare.check(configured("compare", methods=f"a={one},{two}"), tmp_path / "out")
    compare.check(configured("compare", methods=f"sampled={one}; greedy={two}"), tmp_path / "out")
    random = evaluations(tmp_path, "three", "four")
    compare.check(configured("compare", methods=f"a={random[0]},{random[1]}"), tmp_path / "out")


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({"dir": "runs/a"}, {"dir": "runs/b"}, r"dir runs/a and runs/b"),
        ({"dir": "runs/a"}, {"dir": "./runs/../runs/a"}, None),
        ({"step": 3}, {"step": 4}, r"step 3 and 4"),
        ({"extrinsic_coefficient": 0.0}, {"extrinsic_coefficient": 1.0}, None),
        ({"kind": "motif"}, {"kind": "ranking"}, r"kind motif and ranking"),
        ({"kind": "classification"}, {"kind": "classification"}, r"dir .*one and .*two"),
        ({"kind": "table", "table": "a"}, {"kind": "table", "table": "a", "extrinsic_clip": 1}, None),
    ],
)
def test_what_different_rewards_pay_trainings_is_not_compared(tmp_path, first, second, told):
    """Whatever the methods: seeds that each learn a reward are refused, as their evaluations are."""
    for name, reward in (("one", first), ("two", second)):
        (tmp_path / name).mkdir()
        config = {"stage": "train_agent", "reward": reward, "compat": {}}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    for methods in (
        f"a={tmp_path / 'one'}; b={tmp_path / 'two'}",
        f"a={tmp_path / 'one'},{tmp_path / 'two'}",
    ):
        compare.check(configured("compare", methods=methods), tmp_path / "out")
        config = configured("compare", methods=methods, measure="intrinsic_return")
        if told is None:
            compare.check(config, tmp_path / "out")
            continue
        said = rf"^config\.measure=intrinsic_return: .*one and .*two were trained with different rewards \({told}\): evaluate"
        with pytest.raises(UserError, match=said):
            compare.check(config, tmp_path / "out")


def test_trainings_are_compared_by_the_evaluation_of_the_reward_that_they_settled_on(tmp_path):
    for name, step in (("one", 3), ("two", 4)):
        (tmp_path / name).mkdir()
        config = {"stage": "train_agent", "reward": {"dir": "runs/a", "step": None}}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        (tmp_path / name / "plan.json").write_text(json.dumps({"reward_step": step}))
    methods = f"a={tmp_path / 'one'}; b={tmp_path / 'two'}"
    with pytest.raises(UserError, match=r"\(step 3 and 4\)"):
        compare.check(configured("compare", methods=methods, measure="intrinsic_return"), tmp_path / "out")


def test_a_comparison_of_single_runs_pairs_their_games(tmp_path, capsys):
    one, two = evaluations(tmp_path, "one", "two", games=30)
    config = configured("compare", methods=f"a={one}; b={two}", resamples=100, plots=False)
    compare.check(config, tmp_path / "out")
    compare.run(config, tmp_path / "out")
    assert "differences" in capsys.readouterr().out
    assert "], 30 pairs" in (tmp_path / "out/comparison.md").read_text()
    (found,) = json.loads((tmp_path / "out/comparison.json").read_text())["differences"]
    assert found["over_games"]["pairs"] == 30
    assert found["over_runs"]["low"] is None
    summary = json.loads((two / "evaluation.json").read_text())
    summary["plan"]["options"] = {"max_episode_steps": 9}
    evaluation_files.write_summary(two, summary, evaluation_files.read_rows(two / "episodes.jsonl"))
    compare.run(config, tmp_path / "out")
    (found,) = json.loads((tmp_path / "out/comparison.json").read_text())["differences"]
    assert found["over_games"]["pairs"] == 0, "games with other options are other games"
