"""Texts for a scorer: cut with their end kept, and scored in any company."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import expit

from motif_jax.language import folder as folders
from motif_jax.language import text_scorer
from motif_jax.language.text_scorer import LIKED, TextScorer
from motif_jax.language.tokens import Tokenizer
from motif_jax.support.errors import UserError
from tests.language import models
from tests.plain_layers import linear


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = models.write(tmp_path_factory.mktemp("scorer"), "roberta")
    (folder / "tokenizer.json").write_text(models.tokenizer())
    return folder


def scored(model: Any, params: Any, head: Any, row: list[int]) -> float:
    """A text's probability, of its state at the first token."""
    states, _ = model.prefill(params, np.array([row]), np.ones((1, len(row)), bool))
    x = np.asarray(states.after)[0, 0]
    x = np.maximum(linear(np.tanh(linear(x, head["hidden_0"])), head["hidden_1"]), 0)
    return float(expit(linear(x, head["output"])[0]))


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
    texts = [models.TEXT[number % 6] for number in range(65)]
    tokenizer = Tokenizer.read(folder)
    tokens = tokenizer.encode(texts[:6])
    assert min(map(len, tokens)) < 5 < max(map(len, tokens))
    rows = [row if len(row) <= 5 else [*row[:4], row[-1]] for row in tokens]
    (folder / text_scorer.DESCRIPTION).write_text('{"max_len": 5}')
    wanted = [scored(model, params, head[LIKED], row) for row in rows]
    np.testing.assert_allclose(
        TextScorer(folder)(texts), [wanted[number % 6] for number in range(65)], rtol=1e-4
    )
    assert np.ptp(wanted) > 0.1
    for most in (2, 39, True, "5"):
        (folder / text_scorer.DESCRIPTION).write_text(json.dumps({"max_len": most}))
        said = rf"training\.json is damaged \(max_len={most!r}\): restore a copy of it, or train it again$"
        with pytest.raises(UserError, match=said):
            TextScorer(folder)
    assert [text_scorer._longest(folder / "none", room) for room in (38, None)] == [38, None]
    for most in (3, 38):
        (folder / text_scorer.DESCRIPTION).write_text(json.dumps({"max_len": most}))
        assert text_scorer._longest(folder, 38) == text_scorer._longest(folder, None) == most
    assert text_scorer.encoded(tokenizer, texts[:6], None) == tokens
