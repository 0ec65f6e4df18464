"""SIGKILL at many moments: the labels equal those of an undisturbed run, and little is asked
twice.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from motif_jax.core.checked_lines import read_lines
from tests.end_to_end.annotate_datasets import (
    drawn_pairs,
    labels,
    on_a_slow_disk,
    run_stage,
    summary,
    write_dataset,
)
from tests.processes import killed_often, launch


@pytest.mark.extra
def test_killed_many_times(tmp_path):
    """Two shards side by side, with one store, of about as many questions as pairs, which take 6
    seconds on any machine.
    """
    pairs = drawn_pairs(800, length=160)
    environment = on_a_slow_disk(tmp_path)
    starts = []
    dataset = write_dataset(tmp_path / "dataset", pairs)
    store = tmp_path / "store"

    def annotated(index):
        def start(attempt):
            starts.append(index)
            # Every answer is written on its own, so that a kill finds a write under way.
            options = f"dataset_dir={dataset} store_dir={store} flush_seconds=0 num_shards=2 shard_index={index}"
            flags = [f"--config.{flag}" for flag in options.split()]
            log = tmp_path / f"log{index}"
            return launch(run, "annotate.py", *flags, log=log, **environment)

        def written():
            return sum(path.stat().st_size for path in store.glob("*.jsonl"))

        run = tmp_path / f"run{index}"
        killed_often(start, written, 30_000, run, least=2)

    with ThreadPoolExecutor(2) as both:
        list(both.map(annotated, range(2)))
    undisturbed = write_dataset(tmp_path / "undisturbed", pairs)
    run_stage(undisturbed, tmp_path / "undisturbed_run", tmp_path / "undisturbed_store")
    assert (labels(dataset) == labels(undisturbed)).all()
    # A kill loses what was being written and no more.
    lines = sum(1 for path in store.glob("*.jsonl") for _ in read_lines(path))
    questions = summary(tmp_path / "run0")["dataset_questions"]
    assert questions <= lines <= questions + len(starts) - 2
