"""explain_reward, export_reward and import_reward on a small trained reward."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.datasets.pairs import PairsDataset
from motif_jax.rewards.trained import read_trained
from motif_jax.stages import explain_reward, export_reward, import_reward
from motif_jax.support.errors import UserError
from tests.reward_fixtures import launch, load_config, make_dataset, reward_config, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    make_dataset(folder / "dataset", pairs=120)
    small = {"network.hidden_dim": 32}
    train(folder / "a", reward_config(folder / "dataset", **small))
    train(folder / "b", reward_config(folder / "dataset", **small, **{"ensemble.members": 2}))
    return folder


def explain(runs, workdir, **values):
    config = load_config("explain_reward", "")
    config.reward.dir = str(runs / "a")
    config.update_from_flattened_dict(values)
    explain_reward.check(config, workdir)
    explain_reward.run(config, workdir)
    with open(workdir / "messages.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_says_what_the_reward_says(runs, tmp_path, capsys):
    rows = explain(runs, tmp_path, text="Hello|You die...", **{"other.dir": str(runs / "b")})
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
    page = (tmp_path / "explain.html").read_text()
    assert "You die..." in page
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert len(summary["rewards"]) == 2
    assert -1 <= summary["rank_correlation"] <= 1


def test_a_reward_goes_through_a_file_unchanged(runs, tmp_path):
    for name in ("a", "b"):
        config = load_config("export_reward", "")
        config.reward.dir = str(runs / name)
        export_reward.check(config, tmp_path / name)
        export_reward.run(config, tmp_path / name)
        file = tmp_path / name / "reward.safetensors"
        config = load_config("import_reward", "")
        config.file = str(file)
        workdir = tmp_path / f"{name}_back"
        import_reward.check(config, workdir)
        import_reward.run(config, workdir)
        texts = ["Hello", "", "You see here a key."]
        expected = rewards.load(runs / name)
        for place in (file, workdir):
            reward = rewards.load(place)
            np.testing.assert_array_equal(reward.raw(texts), expected.raw(texts))
            np.testing.assert_array_equal(reward.intrinsic(texts), expected.intrinsic(texts))
        back = read_trained(workdir)
        assert back.statistics == expected.trained.statistics
        assert back.members == expected.trained.members
    rows = explain(runs, tmp_path / "e", **{"reward.dir": str(tmp_path / "a" / "reward.safetensors")})
    assert rows


def test_no_threshold_through_the_flags(runs, tmp_path):
    where = [f"--config.reward.dir={runs / 'a'}", "--config.reward.quantile=None", "--config.text=Hello"]
    said = launch("explain_reward", tmp_path / "e", *where, variant="")
    normalised, paid = re.search(r"normalised ([-+0-9.]+), pays ([-0-9.]+)", said).groups()
    assert float(normalised) == float(paid) != 0
    report = [f"--config.dataset_dir={runs / 'dataset'}", *where[:2], "--config.plots=False"]
    launch("report", tmp_path / "r", *report, variant="")
    assert (tmp_path / "r" / "report.html").exists()


def test_a_reward_that_reads_more_is_averaged_over_the_steps_that_show_a_message(tmp_path):
    make_dataset(tmp_path / "dataset", pairs=60, messages=10)
    train(
        tmp_path / "a",
        reward_config(tmp_path / "dataset", **{"network.status": True, "network.hidden_dim": 32}),
    )
    rows = explain(tmp_path, tmp_path / "e")
    trained, dataset = read_trained(tmp_path / "a"), PairsDataset.open(tmp_path / "dataset")
    inputs = {name: dataset.data[name].reshape(120, -1) for name in ("message", "blstats")}
    raw = np.asarray(trained.network.reward(trained.params, inputs))
    chosen = next(row for row in rows if row["message"])
    shown = [bytes(m).rstrip(b"\0").decode() == chosen["message"] for m in inputs["message"]]
    assert float(chosen["raw"]) == pytest.approx(raw[shown].mean(), rel=1e-3)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"reward.dir": None}, "config.reward.dir=None"),
        ({"reward.dir": "/nowhere"}, "a run folder or a .safetensors file"),
        ({"dataset_dir": "/nowhere"}, "existing folder"),
        ({"reward.quantile": 0.53}, "must be one of 0.05"),
        ({"max_rows": 0}, "config.max_rows=0"),
    ],
)
def test_bad_values_are_named(runs, tmp_path, values, words):
    with pytest.raises(UserError, match=words):
        explain(runs, tmp_path, **values)
