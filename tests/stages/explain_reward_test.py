"""explain_reward, export_reward and import_reward on a small trained reward."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.rewards.reward_function import as_rows
from motif_jax.rewards.reward_model import read_run
from motif_jax.stages import explain_reward, exports
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config, make_dataset, reward_config, run_config, run_stage, train

pytestmark = [pytest.mark.extra, pytest.mark.usefixtures("compiled_quickly")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    make_dataset(folder / "dataset", pairs=120)
    small = {"network.hidden_dim": 32}
    train(folder / "a", reward_config(folder / "dataset", **small))
    train(folder / "b", reward_config(folder / "dataset", **small, **{"ensemble.members": 2}))
    return folder


def make_config(runs, values):
    return load_config("explain_reward", "", {"reward.dir": str(runs / "a"), **values})


def explain(runs, workdir, **values):
    run_config(make_config(runs, values), workdir)
    with open(workdir / "messages.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:  # cells that a spreadsheet would take for a formula are quoted
        row["message"] = re.sub(r"^'(?=[=+\-@\t])", "", row["message"])
    return rows


def test_the_table_says_what_the_reward_says(runs, tmp_path, capsys):
    rows = explain(runs, tmp_path, text="Hello|You die...|", **{"other.dir": str(runs / "b")})
    dataset = PairsDataset.open(runs / "dataset")
    messages = dataset.data["message"].reshape(-1, 256)
    assert sum(int(row["count"]) for row in rows) == len(messages)
    assert len(rows) == len(np.unique(messages, axis=0))
    for letter, name in (("A", "a"), ("B", "b")):
        reward = rewards.load(runs / name)
        texts = [row["message"] for row in rows]
        found = np.array([float(row[f"{letter}_normalised"]) for row in rows])
        np.testing.assert_allclose(found, reward(texts), rtol=1e-4, atol=1e-5)
        paid = np.array([float(row[f"{letter}_paid"]) for row in rows])
        np.testing.assert_allclose(paid, reward.intrinsic(texts), rtol=1e-4, atol=1e-5)
        first = rewards.load(runs / name, 0)
        found = np.array([float(row[f"{letter}_normalised_at_0"]) for row in rows])
        np.testing.assert_allclose(found, first(texts), rtol=1e-4, atol=1e-4)
    assert float(rows[0]["A_normalised"]) >= float(rows[-1]["A_normalised"])
    assert all(float(row["B_disagreement"]) >= 0 for row in rows)
    assert "A_disagreement" not in rows[0]
    printed = capsys.readouterr().out
    assert f"'Hello'  a: normalised {float(rewards.load(runs / 'a')('Hello')):+.3f}" in printed
    assert "never in the dataset" in printed
    with open(tmp_path / "texts.csv", encoding="utf-8", newline="") as file:
        assert {row["message"]: row["count"] for row in csv.DictReader(file)} == {
            "Hello": "0",
            "You die...": "0",
            "": str((messages == 0).all(axis=1).sum()),
        }
    page = (tmp_path / "explain.html").read_text()
    assert "You die..." in page
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert len(summary["rewards"]) == 2
    assert -1 <= summary["rank_correlation"] <= 1


def test_a_reward_goes_through_a_file_unchanged(runs, tmp_path):
    for name in ("a", "b"):
        run_stage("export_reward", tmp_path / name, "", **{"reward.dir": str(runs / name)})
        file = tmp_path / name / "reward.safetensors"
        workdir = run_stage("import_reward", tmp_path / f"{name}_back", "", file=str(file))
        texts = ["Hello", "", "You see here a key."]
        expected = rewards.load(runs / name)
        for place in (file, workdir):
            reward = rewards.load(place)
            np.testing.assert_array_equal(reward.raw(texts), expected.raw(texts))
            np.testing.assert_array_equal(reward.intrinsic(texts), expected.intrinsic(texts))
        back = read_run(workdir)
        assert back.statistics == expected.trained.statistics
        assert back.members == expected.trained.members
    rows = explain(runs, tmp_path / "e", **{"reward.dir": str(tmp_path / "a" / "reward.safetensors")})
    assert rows


def test_a_refused_export_leaves_its_folder_to_any_other_command(runs, tmp_path):
    config = load_config("export_reward", "", {"reward.dir": str(runs / "a"), "reward.step": 9})
    exports.check(config, tmp_path / "out")
    with pytest.raises(UserError, match="has no evaluation 9"):
        exports.run(config, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".lock"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"reward.quantile": 0.53}, "must be one of 0.05"),
        ({"text": "a \u2603"}, "config.text: .* not latin-1"),
        ({"reward.step": 9}, "has no evaluation 9: it has 0 to 1"),
        ({"other.dir": "agent"}, "holds a run of train_agent, not of train_reward"),
    ],
)
def test_bad_values_are_named(runs, tmp_path, values, words):
    (runs / "agent").mkdir(exist_ok=True)
    (runs / "agent" / "config.json").write_text('{"stage": "train_agent"}')
    inside = {key: str(runs / place) for key, place in values.items() if place == "agent"}
    with pytest.raises(UserError, match=words):
        explain_reward.check(make_config(runs, {**values, **inside}), tmp_path)


def test_an_ensemble_says_where_it_disagrees(runs):
    reward = rewards.load(runs / "b")
    texts = ["Hello", "", "You see here a key."]
    members = reward.trained.members_of_messages(reward.trained.params, as_rows(texts)[0])
    statistics = reward.trained.statistics
    own = (members - np.c_[statistics["member_mean"]]) / np.sqrt(np.c_[statistics["member_variance"]])
    np.testing.assert_allclose(reward.disagreement(texts), own.std(axis=0), rtol=1e-4)
    assert reward.disagreement("Hello").shape == ()
    with pytest.raises(UserError, match="is a single model, so nothing can disagree"):
        rewards.load(runs / "a").disagreement("Hello")
