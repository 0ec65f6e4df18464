"""Ensembles of annotations by the stage: what is written over on request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.support.errors import UserError
from tests.reward_fixtures import make_dataset, run_stage, write_labels


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """One with three annotations."""
    make_dataset(tmp_path / "dataset", pairs=60)
    rng = np.random.default_rng(0)
    for name in ("lexicon_msg_gold", "random"):
        probabilities = rng.dirichlet(np.ones(3), 60)
        labels = probabilities.argmax(1).astype(np.int8)
        write_labels(tmp_path / "dataset", name, labels, probabilities)
    return tmp_path / "dataset"


def test_labels_of_something_else_are_written_over_on_request_alone(dataset: Path, tmp_path: Path) -> None:
    def merge(**values: object) -> np.ndarray:
        flags = {"dataset_dir": str(dataset), "name": "ensemble", **values}
        run_stage("merge_annotations", tmp_path / "merge", "", **flags)
        return np.load(dataset / "annotations" / "ensemble" / "probabilities.npy")

    first = merge()
    assert (merge() == first).all()
    with pytest.raises(UserError, match="was made from other labels"):
        merge(method="mean")
    assert (merge(method="mean", restart=True) != first).any()
