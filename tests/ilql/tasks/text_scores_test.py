from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.ilql.tasks.reddit.task import Reddit
from motif_jax.ilql.tasks.text_scores import Toxicity
from motif_jax.motif.annotation import store
from motif_jax.motif.annotation.lexicon import LexiconAnnotator


def test_a_store_is_read_once_for_all_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Reddit({"store": str(tmp_path / "store")}).options
    read: list[bytes] = []
    of_line = store.decode_line
    monkeypatch.setattr(store, "decode_line", lambda line: read.append(line) or of_line(line))
    monkeypatch.setattr(store, "read_lines", lambda *_: pytest.fail("all files were read"))
    assert Toxicity(options)([f"reply {number}" for number in range(50)]) == [0] * 50
    read.clear()  # its own answers, where it took longer than its index is content with what it knows
    scorer = Toxicity(options)
    assert [scorer([f"reply {number}"]) for number in range(30)] == [[0]] * 30
    assert len(read) == 100, "the answers to two questions about each of 50 texts"
    monkeypatch.undo()
    # What another asked is found.
    scorer._store._refresh_seconds = 0.0
    assert scorer(["thanks"]) == [0]
    assert Toxicity(options)(["you idiot"]) == [2]
    monkeypatch.setattr(LexiconAnnotator, "annotate", lambda *_: pytest.fail("it was asked again"))
    assert scorer(["you idiot", "thanks"]) == [2, 0]
