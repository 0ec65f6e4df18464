"""A server in this process, a dataset, and the stage that asks the one about the other."""

from __future__ import annotations

import random

import pytest

from tests.end_to_end.annotate_datasets import run_stage, write_dataset
from tests.end_to_end.annotate_server.served import KEY
from tests.tiny_judge import pair


@pytest.fixture
def dataset(tmp_path):
    rng = random.Random(4)
    return write_dataset(tmp_path / "dataset", [pair(rng) for _ in range(120)])


@pytest.fixture
def run(server, dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    fixed = {"annotator": "openai", "openai__base_url": server.url, "openai__model": "judge"}
    fixed |= {"openai__retries": 1, "openai__concurrency": 8, "flush_seconds": 0.1}
    return lambda **values: run_stage(
        dataset, tmp_path / "run", tmp_path / "store", **{**fixed, **values}
    )
