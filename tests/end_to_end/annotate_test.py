"""The annotate stage with annotators that need no model: shards, resume, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.labels.captions import decode_message
from motif_jax.support.errors import UserError
from tests.end_to_end.annotate_datasets import (
    conversations,
    drawn_pairs,
    labels,
    run_stage,
    write_dataset,
)


@pytest.fixture
def dataset(tmp_path):
    return write_dataset(tmp_path / "dataset", drawn_pairs(400))


@pytest.fixture
def run(tmp_path):
    return lambda dataset, **values: run_stage(dataset, tmp_path / "run", tmp_path / "store", **values)


def test_one_shard_and_again(dataset, run):
    first = run(dataset)
    got = labels(dataset)
    assert set(got.tolist()) == {0, 1, 2}
    messages = np.load(dataset / "data" / "message.npy")[:, :, 0]
    equal = np.array([decode_message(a) == decode_message(b) for a, b in messages])
    assert (got[equal] == 2).all()
    assert equal.any()
    # Fewer questions than pairs, each asked once.
    assert first["asked"] == first["dataset_questions"] < len(got)
    (path,) = (dataset / "annotations").glob("*/probabilities.npy")
    probabilities = np.load(path)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    known = got != 2
    assert (probabilities[known].argmax(1) == got[known]).all()
    again = run(dataset)
    assert again["asked"] == 0
    assert again["store_hits"] == first["asked"]
    assert (labels(dataset) == got).all()


def test_any_number_of_shards_and_nothing_asked_again(dataset, run, tmp_path):
    total = run(dataset)["asked"]
    want = labels(dataset)
    for count in (3, 7):
        (dataset / "preference" / "lexicon_msg_defaultgoal.npy").unlink()
        for index in range(count):
            done = run(dataset, num_shards=count, shard_index=index)
            assert done["asked"] == 0
            assert ("merged" in done) == (index == count - 1)
        assert (labels(dataset) == want).all()
    # A larger dataset with other pairs of the same messages: only what is new is asked.
    larger = write_dataset(tmp_path / "larger", drawn_pairs(400) + drawn_pairs(50, seed=9))
    more = run(larger)
    assert more["store_hits"] == total
    assert more["asked"] == more["dataset_questions"] - total > 0
    assert (labels(larger)[:400] == want).all()


def test_labels_of_something_else_are_refused(dataset, run):
    run(dataset, name="mine")
    before = labels(dataset, "mine")
    with pytest.raises(
        UserError, match=r"annotator.goal: defaultgoal before, gold now.*--config.restart=True"
    ):
        run(dataset, name="mine", goal="gold")
    assert (labels(dataset, "mine") == before).all()
    messages = np.load(dataset / "data" / "message.npy")
    np.save(dataset / "data" / "message.npy", messages[:, ::-1])
    with pytest.raises(UserError, match=r"dataset.content_hash"):
        run(dataset, name="mine")


def test_a_published_label_file_is_not_overwritten(dataset, run):
    (dataset / "preference").mkdir()
    np.save(dataset / "preference" / "mine.npy", np.full(400, 1, np.int8))
    with pytest.raises(UserError, match="was not written by annotate"):
        run(dataset, name="mine")
    assert (labels(dataset, "mine") == 1).all()


def test_a_pilot_asks_so_many(dataset, run, tmp_path, capsys):
    done = run(dataset, limit=7, keep_conversations=True)
    assert done["asked"] == 7
    assert not done["finished"]
    kept = list((tmp_path / "run" / "conversations").glob("*.gz"))
    assert sum(len(conversations(path)) for path in kept) == 7
    run(dataset, dry_run=True)
    said = capsys.readouterr().out
    assert "7 answered in" in said
    assert "questions/s (measured in" in said
    assert not (dataset / "preference").exists()
    rest = run(dataset)
    assert rest["asked"] == rest["dataset_questions"] - 7
