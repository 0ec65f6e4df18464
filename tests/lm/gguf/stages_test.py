"""A GGUF file in the place of a model's folder gives the same labels and scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax import lm
from tests import made_up_judge
from tests.end_to_end.annotate_datasets import write_dataset
from tests.lm.gguf import gguf_writing
from tests.reward_fixtures import run_stage

CAPTIONS = ["You kill the newt!", "It's a wall.", "You see here a dagger."]
PAIRS = [(first, second) for first in CAPTIONS for second in CAPTIONS if first != second]


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder and a GGUF file with the same weights."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = made_up_judge.write(tmp_path / "judge")
    file = gguf_writing.write(folder, tmp_path / "judge.gguf")
    return {"folder": str(folder), "file": str(file)}


@pytest.mark.slow
def test_annotate_labels_as_with_the_folder(tmp_path: Path, models: dict[str, str]) -> None:
    dataset = write_dataset(tmp_path / "dataset", PAIRS)
    values = {"dataset_dir": str(dataset), "annotator": "model", "answer.minimum_mass": 0.0}

    for name, model in models.items():
        stores = {"store_dir": str(tmp_path / f"store_{name}"), "name": name}
        run_stage(
            "annotate", tmp_path / f"run_{name}", "", **values, **stores, **{"model.model": model}
        )

    of_folder = np.load(dataset / "annotations" / "folder" / "probabilities.npy")
    of_file = np.load(dataset / "annotations" / "file" / "probabilities.npy")
    assert len(of_folder) == len(PAIRS)
    np.testing.assert_allclose(of_file, of_folder, rtol=1e-5)


@pytest.mark.slow
def test_a_file_scores_as_its_folder(models: dict[str, str]) -> None:
    scores = {name: lm.load(model).score(CAPTIONS, [" A", " B"]) for name, model in models.items()}

    np.testing.assert_allclose(scores["file"], scores["folder"], rtol=1e-5)
