"""Ensembles of annotations through the real flags."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.end_to_end.annotate_datasets import REPOSITORY, drawn_pairs, run_stage, write_dataset
from tests.refusals import refusal


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """One with three annotations; what is merged is added to it."""
    place = tmp_path_factory.mktemp("annotated")
    folder = write_dataset(place / "dataset", drawn_pairs(200))
    for goal in ("defaultgoal", "gold"):
        run_stage(folder, place / "run", place / "store", goal=goal)
    run_stage(folder, place / "run", place / "store", annotator="random")
    return folder


def merge(dataset, tmp_path, *flags):
    line = [sys.executable, "-m", "motif_jax.launch", "--config=configs/merge_annotations.py"]
    line += [f"--workdir={tmp_path / 'merge'}", f"--config.dataset_dir={dataset}", *flags]
    return subprocess.run(line, cwd=REPOSITORY, capture_output=True, text=True, timeout=500, check=False)


def test_majority_and_tables(dataset, tmp_path):
    done = merge(dataset, tmp_path, "--config.name=ensemble")
    assert done.returncode == 0, done.stderr
    assert "goal defaultgoal" in done.stdout
    assert "goal gold" in done.stdout
    assert "across goals" in done.stdout
    names = ["lexicon_msg_defaultgoal", "lexicon_msg_gold", "random"]
    votes = np.stack([np.load(dataset / "preference" / f"{name}.npy") for name in names])
    merged = np.load(dataset / "preference" / "ensemble.npy")
    for pair in range(200):
        counts = np.bincount(votes[:, pair], minlength=3)
        winners = np.flatnonzero(counts == counts.max())
        assert merged[pair] == (winners[0] if len(winners) == 1 else 2)
    probabilities = np.load(dataset / "annotations" / "ensemble" / "probabilities.npy")
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    summary = json.loads((tmp_path / "merge" / "summary.json").read_text())
    assert summary["names"] == names
    assert len(summary["agreement"]) == 3
    assert all(-1 <= row["kappa"] <= 1 for row in summary["agreement"])
    # The same again is fine; of something else it is refused.
    assert merge(dataset, tmp_path, "--config.name=ensemble").returncode == 0
    other = merge(dataset, tmp_path, "--config.name=ensemble", "--config.method=mean")
    assert other.returncode == 2
    assert "was made of something else" in other.stderr
    assert other.stderr.count("\n") == 1
    replaced = merge(
        dataset, tmp_path, "--config.name=ensemble", "--config.method=mean", "--config.restart=True"
    )
    assert replaced.returncode == 0
    mean = np.mean([np.load(dataset / "annotations" / name / "probabilities.npy") for name in names], axis=0)
    got = np.load(dataset / "annotations" / "ensemble" / "probabilities.npy")
    np.testing.assert_allclose(got, mean, atol=1e-6)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--config.names=random,nobody", "--config.name=e"], "must be label files of the dataset"),
        (["--config.names=random", "--config.name=e"], "config.names='random'"),
        (["--config.names=random,lexicon_msg_gold", "--config.name=random"], "config.name='random'"),
    ],
)
def test_bad_values_are_refused(dataset, tmp_path, flags, said):
    line = refusal("merge_annotations.py", tmp_path / "merge", f"--config.dataset_dir={dataset}", *flags)
    assert said in line
