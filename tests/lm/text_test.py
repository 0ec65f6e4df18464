"""Texts in, texts and numbers out: a tokenizer trained on the spot and a tiny model."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from motif_jax import lm as language
from motif_jax.core.errors import UserError
from motif_jax.lm import scoring
from motif_jax.lm.generation import Sampling
from motif_jax.lm.tokens import TOKENS_OF_BATCH, Tokenizer, bucket, candidate_rows, padded
from tests.lm.models import TEXT

ACTIONS = ["turn left", "turn right", "go forward"]


@pytest.fixture(scope="module")
def model(worded: Path) -> language.TextModel:
    return language.load(worded, batch=4)


def test_tokens_go_to_text_and_back(worded: Path) -> None:
    tokenizer = Tokenizer.read(worded)
    rows = tokenizer.encode(TEXT)
    assert [tokenizer.decode(row) for row in rows] == TEXT
    assert "".join(tokenizer.pieces(rows[0])) == TEXT[0]
    assert tokenizer.decode([1, *rows[0], 2]) == TEXT[0], "special tokens are left out"


def test_a_token_is_found_by_its_name(worded: Path) -> None:
    tokenizer = Tokenizer.read(worded)
    assert (tokenizer.find("</s>"), tokenizer.token("</s>"), tokenizer.find("none")) == (2, 2, None)


def test_a_tokenizer_fits_a_model_of_its_size(worded: Path) -> None:
    assert Tokenizer.read(worded, 60).size == 60


def test_candidate_rows_are_the_tokens_of_the_texts(worded: Path) -> None:
    tokenizer = Tokenizer.read(worded)
    assert candidate_rows(tokenizer, TEXT) == tokenizer.encode(TEXT)


def test_rows_are_padded_to_the_longest() -> None:
    tokens, valid = padded([[1, 2], [3], []], pad=7)
    assert (tokens.tolist(), tokens.dtype) == ([[1, 2], [3, 7], [7, 7]], np.int32)
    assert valid.tolist() == [[True, True], [True, False], [False, False]]
    assert padded([]).tokens.shape == (0, 0)


def test_rows_are_padded_to_a_given_length() -> None:
    assert padded([[1], [2, 3]], 4).tokens.tolist() == [[1, 0, 0, 0], [2, 3, 0, 0]]


def test_buckets_are_few_and_long_enough() -> None:
    sizes = [16, 24, 32, 48, 64, 96, 128, 192]
    expected = [next(size for size in sizes if size >= length) for length in range(1, 193)]
    assert [bucket(length) for length in range(1, 193)] == expected
    assert [bucket(40, max_tokens) for max_tokens in (44, 48, 60, 40, 30)] == [44, 48, 48, 40, 40]


@pytest.mark.slow
def test_scores_do_not_depend_on_what_is_scored_beside(model: language.TextModel) -> None:
    prompts = [*TEXT, "go"]
    actions_of_prompts = [ACTIONS, ACTIONS[:2], *[ACTIONS[1:]] * 5]
    scores = model.score(prompts, actions_of_prompts)
    for prompt, names, row in zip(prompts, actions_of_prompts, scores, strict=True):
        assert row.shape == (len(names),)
        np.testing.assert_allclose(model.score([prompt], names)[0], row, rtol=1e-5)
    single = [text for text in "abcdefgh" if len(model.tokenizer.encode([text])[0]) == 1][:3]
    alone, beside = (model.score(["go"], texts)[0] for texts in (single, [*single, "turn left"]))
    assert len(alone) == 3
    np.testing.assert_allclose(alone, beside[:3], rtol=1e-5)
    states = model.states(TEXT)
    assert [len(row) for row in states] == [len(row) for row in model.tokenizer.encode(TEXT)]
    np.testing.assert_allclose(model.states(TEXT[3:4])[0], states[3], rtol=1e-4, atol=1e-5)


@pytest.mark.extra
def test_texts_are_written_from_a_seed(worded: Path, model: language.TextModel) -> None:
    greedy = model.generate(TEXT, max_new_tokens=5)
    assert greedy == [model.generate([text], max_new_tokens=5)[0] for text in TEXT]
    how: dict[str, Any] = {"max_new_tokens": 5, "sampling": Sampling(), "count": 3}
    one, other = (model.generate(TEXT[:2], **how, seed=seed) for seed in (1, 2))
    assert [len(texts) for texts in one] == [3, 3]
    assert one == language.load(worded, batch=2).generate(TEXT[:2], **how, seed=1), "of any batch"
    assert one != other


@pytest.mark.extra
def test_a_text_is_looked_at_token_by_token(model: language.TextModel) -> None:
    prompts = ["go to", "turn", "go"]
    texts = [" the red ball", " left", " forward"]
    for prompt, text, look in zip(
        prompts, texts, model.token_log_probs(prompts, texts), strict=True
    ):
        assert "".join(look.pieces) == prompt + text
        assert look.start == len(model.tokenizer.encode([prompt])[0])
        total = model.score([prompt], [text])[0][0]
        np.testing.assert_allclose(look.log_probs[look.start :].sum(), total, rtol=1e-4)
        assert np.isnan([look.log_probs[0], look.entropies[0]]).all()
        assert (look.entropies[1:] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.score(["go"], ACTIONS),
        lambda model: model.generate(["go"], 3),
        pytest.param(
            lambda model: model.generate(["go"], 3, sampling=Sampling(), count=2),
            marks=pytest.mark.extra,
        ),
        pytest.param(
            lambda model: model.generate(["go"], 3, search=True, count=2), marks=pytest.mark.extra
        ),
        lambda model: model.token_log_probs(["go"], [" left"]),
    ],
    ids=["score", "greedy", "draws", "beams", "tokens"],
)
def test_weights_that_are_no_numbers_say_nothing(
    model: language.TextModel, call: Callable[[language.TextModel], object]
) -> None:
    """The first candidate is not the best where no score is a number."""
    broken = copy.copy(model)
    broken.params = jax.tree.map(lambda leaf: leaf * float("nan"), model.params)
    with pytest.raises(UserError, match=r"weights hold values that are not finite"):
        call(broken)


def test_many_candidates_of_a_prompt_run_with_fewer_prompts(
    worded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logits of all candidates of a batch are in memory at once."""
    shapes = []
    score = scoring.score

    def noting(model: Any, params: Any, prompt: Any, valid: Any, candidates: Any, *rest: Any, **more: Any) -> Any:  # fmt: skip
        shapes.append(candidates.shape)
        return score(model, params, prompt, valid, candidates, *rest, **more)

    monkeypatch.setattr(scoring, "score", noting)
    names = [f" {first}{second}" * 4 for first in "abcdefghik" for second in "lnoprt"]

    language.load(worded).score(["go", "turn", "pick", "the"] * 8, names)

    assert shapes
    for batch, candidates, length in shapes:
        assert batch * candidates * length <= TOKENS_OF_BATCH


@pytest.mark.slow
def test_a_decoder_continues_a_prompt_without_its_end_token(
    worded: Path, model: language.TextModel, tmp_path: Path
) -> None:
    """Some tokenizers add an end token to a text; a continuation after it would not belong to the
    prompt.
    """
    folder = Path(shutil.copytree(worded, tmp_path / "closing"))
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    end = backend.token_to_id("</s>")
    backend.post_processor = TemplateProcessing("$A </s>", special_tokens=[("</s>", end)])
    backend.save(str(folder / "tokenizer.json"))

    closing = language.load(folder, batch=4)

    assert closing.tokenizer.encode(TEXT[:1])[0][-1] == end
    assert closing.generate(TEXT, 4) == model.generate(TEXT, 4)
