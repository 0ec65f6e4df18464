"""What binds the shards of one annotation together."""

from __future__ import annotations

import json

import pytest

from motif_jax.labels import manifest
from motif_jax.support.errors import UserError

OLD = {
    "format": 1,
    "name": "mine",
    "annotator": {"model": "a", "sampling": {"seed": 0}},
    "dataset": {"pairs": 3},
    "questions": {"digest": "x"},
    "versions": {"vllm": "1"},
}


def changed(**sections):
    return {**OLD, **sections}


def test_what_binds_is_compared_and_versions_are_not():
    assert manifest.differences(OLD, changed(versions={"vllm": "2"})) == []
    for section in manifest.BINDING:
        assert manifest.differences(OLD, changed(**{section: {"other": 1}}))
    now = changed(annotator={"model": "b", "sampling": {"seed": 0}, "goal": "gold"})
    assert manifest.differences(OLD, now) == [
        "annotator.goal: absent there, gold now",
        "annotator.model: a there, b now",
    ]


def test_another_annotations_shard_is_refused(tmp_path):
    manifest.check_same(tmp_path / "shard.json", OLD, changed(versions={}))
    said = r"shard.json belongs to another annotation \(name: mine there, yours now\)"
    with pytest.raises(UserError, match=said):
        manifest.check_same(tmp_path / "shard.json", OLD, changed(name="yours"))


def test_a_file_that_is_none_is_named(tmp_path):
    path = tmp_path / "shard.json"
    assert manifest.read(path) is None
    path.write_text(json.dumps(OLD))
    assert manifest.read(path) == OLD
    for text in ("{", "[1]"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"shard.json is not a manifest"):
            manifest.read(path)
