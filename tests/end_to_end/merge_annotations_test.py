"""Ensembles of annotations by the stage: what is written over on request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.support.errors import UserError
from tests.reward_fixtures import make_dataset, run_stage, write_labels


def test_labels_of_something_else_are_written_over_on_request_alone(tmp_path: Path) -> None:
    dataset, rng = tmp_path / "dataset", np.random.default_rng(0)
    make_dataset(dataset, pairs=60)
    for name in ("lexicon_msg_gold", "random"):
        probabilities = rng.dirichlet(np.ones(3), 60)
        write_labels(dataset, name, probabilities.argmax(1).astype(np.int8), probabilities)

    def merge(**values: object) -> np.ndarray:
        flags = {"dataset_dir": str(dataset), "name": "ensemble", **values}
        run_stage("merge_annotations", tmp_path / "merge", "", **flags)
        return np.load(dataset / "annotations" / "ensemble" / "probabilities.npy")

    first = merge()
    assert (merge() == first).all()
    with pytest.raises(UserError, match="was made from other labels"):
        merge(method="mean")
    assert (merge(method="mean", restart=True) != first).any()
