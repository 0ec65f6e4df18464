"""Texts for a scorer: cut with their end kept, and scored in any company."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy.special import expit

from motif_jax.language import folder as folders
from motif_jax.language import text_scorer
from motif_jax.language.text_scorer import LIKED, TextScorer
from motif_jax.language.tokens import Tokenizer, padded
from motif_jax.support.errors import UserError
from tests import plain_layers
from tests.language import models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = models.write(tmp_path_factory.mktemp("scorer"), "roberta")
    (folder / "tokenizer.json").write_text(models.tokenizer())
    return folder


@pytest.mark.slow
def test_probabilities_are_of_the_text_up_to_the_longest_of_the_training(folder: Path) -> None:
    model, params = models.load(folder)
    with pytest.raises(
        UserError, match=f"^{folder}: must be a folder that train_upvote or import_ilql writes$"
    ):
        TextScorer(folder)
    heads = text_scorer.heads_of(model.config)
    head = heads.init(jax.random.key(0))
    head[LIKED]["output"]["kernel"] *= 20
    folders.write(folder, model.config, params, heads, head)
    (folder / text_scorer.DESCRIPTION).write_text('{"max_len": 5}')
    tokens = Tokenizer.read(folder).encode(models.TEXT)
    assert min(map(len, tokens)) < 5 < max(map(len, tokens))
    states, _ = model.prefill(
        params, *padded([row[:4] + row[-1:] if len(row) > 5 else row for row in tokens])
    )
    layers = head[LIKED]
    x = np.tanh(plain_layers.linear(np.asarray(states.after)[:, 0], layers["hidden_0"]))
    x = plain_layers.linear(np.maximum(plain_layers.linear(x, layers["hidden_1"]), 0), layers["output"])[:, 0]
    found = TextScorer(folder)([models.TEXT[number % 6] for number in range(65)])
    np.testing.assert_allclose(found, [expit(x[number % 6]) for number in range(65)], rtol=1e-4)
    assert np.ptp(found) > 0.1


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
