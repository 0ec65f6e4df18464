"""What replies cost that are scored one at a time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from motif_jax.envs.reddit.task import Reddit
from motif_jax.labels import answer_index, store
from motif_jax.labels.lexicon import LexiconAnnotator
from motif_jax.rollouts.text_scores import Toxicity


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return Reddit({"store": str(tmp_path / "store")}).options


def test_a_store_is_read_once_however_many_replies_are_scored(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    of_line = answer_index.decode_line
    monkeypatch.setattr(answer_index, "decode_line", lambda line: read.append(line) or of_line(line))
    monkeypatch.setattr(store, "read_lines", lambda *_: pytest.fail("all files were read"))
    assert Toxicity(options)([f"reply {number}" for number in range(50)]) == [0] * 50
    read.clear()  # its own answers, where it took longer than its index is content with what it knows
    scorer = Toxicity(options)
    for number in range(30):
        assert scorer([f"reply {number}"]) == [0]
    # The answers to two questions about each of 50 texts, and those that were looked up.
    assert len(read) == 100 + 60


def test_a_scorer_finds_what_others_asked_and_lets_go_of_the_files(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = Toxicity(options)
    scorer._index._refresh_seconds = 0.0
    assert scorer(["thanks"]) == [0]
    assert Toxicity(options)(["you idiot"]) == [2]
    monkeypatch.setattr(LexiconAnnotator, "annotate", lambda *_: pytest.fail("it was asked again"))
    assert scorer(["you idiot", "thanks"]) == [2, 0]
    descriptor = scorer._index._files[0].descriptor
    del scorer
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
