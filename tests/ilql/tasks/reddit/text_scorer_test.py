"""Texts for a scorer are cut with their end kept."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.tasks.reddit import text_scorer


def test_the_longest_text_is_that_of_the_training_or_the_models(tmp_path: Path) -> None:
    cut = functools.partial(text_scorer.encoded, SimpleNamespace(encode=lambda texts: [*map(list, texts)]))
    assert [cut(["abcd", "abc"], most) for most in (3, None)] == [[[*"abd"], [*"abc"]], [[*"abcd"], [*"abc"]]]
    assert [text_scorer._longest(tmp_path, room) for room in (38, None)] == [38, None]
    for most, fits in ((3, True), (38, True), (2, False), (39, False), (True, False), ("5", False)):
        (tmp_path / text_scorer.DESCRIPTION).write_text(json.dumps({"max_len": most}))
        if fits:
            assert text_scorer._longest(tmp_path, 38) == text_scorer._longest(tmp_path, None) == most
            continue
        said = rf"training\.json is damaged \(max_len={most!r}\): restore a copy of it, or train it again$"
        with pytest.raises(UserError, match=said):
            text_scorer._longest(tmp_path, 38)
