"""What annotate refuses to write over."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from tests.end_to_end.annotate_datasets import drawn_pairs, labels, run_stage, write_dataset


def test_labels_of_something_else_are_refused(tmp_path):
    dataset = write_dataset(tmp_path / "dataset", drawn_pairs(40))

    def refused(line, **values):
        before = labels(dataset, values["name"])
        with pytest.raises(UserError, match=line):
            run_stage(dataset, tmp_path / "run", tmp_path / "store", **values)
        assert (labels(dataset, values["name"]) == before).all()

    run_stage(dataset, tmp_path / "run", tmp_path / "store", name="mine")
    refused(
        r"annotator.goal: defaultgoal before, gold now.*--config.restart=True",
        name="mine",
        goal="gold",
    )
    messages = np.load(dataset / "data" / "message.npy")
    np.save(dataset / "data" / "message.npy", messages[:, ::-1])
    refused(r"dataset.content_hash", name="mine")
    np.save(dataset / "preference" / "published.npy", np.full(40, 1, np.int8))
    refused("was not written by annotate", name="published")
