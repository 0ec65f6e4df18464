"""What replies cost that are scored one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from motif_jax.envs.reddit.task import Reddit
from motif_jax.labels import store
from motif_jax.labels.lexicon import LexiconAnnotator
from motif_jax.rollouts.text_scores import Toxicity


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return Reddit({"store": str(tmp_path / "store")}).options


def test_a_store_is_read_once_however_many_replies_are_scored(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    of_line = store.decode_line
    monkeypatch.setattr(store, "decode_line", lambda line: read.append(line) or of_line(line))
    monkeypatch.setattr(store, "read_lines", lambda *_: pytest.fail("all files were read"))
    assert Toxicity(options)([f"reply {number}" for number in range(50)]) == [0] * 50
    read.clear()  # its own answers, where it took longer than its index is content with what it knows
    scorer = Toxicity(options)
    for number in range(30):
        assert scorer([f"reply {number}"]) == [0]
    # The answers to two questions about each of 50 texts.
    assert len(read) == 100


def test_a_scorer_finds_what_others_asked(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = Toxicity(options)
    scorer._store._refresh_seconds = 0.0
    assert scorer(["thanks"]) == [0]
    assert Toxicity(options)(["you idiot"]) == [2]
    monkeypatch.setattr(LexiconAnnotator, "annotate", lambda *_: pytest.fail("it was asked again"))
    assert scorer(["you idiot", "thanks"]) == [2, 0]
