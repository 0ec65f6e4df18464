"""What binds the shards of one annotation together."""

from __future__ import annotations

from motif_jax.labels import manifest

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
