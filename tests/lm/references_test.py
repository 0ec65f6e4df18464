"""Every architecture against transformers: states and logits, padding on either side, greedy and
beam output, gradients.
"""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import beams, generation, scoring, weights
from motif_jax.lm.generation import Limits, Sampling
from motif_jax.lm.model import LanguageModel
from tests.lm import recipes
from tests.lm.models import NAMES, reference
from tests.sets import extra

QUICK = ("qwen2", "t5_gated")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name not in QUICK]
WRITERS = [name for name in NAMES if name != "roberta"]
# Gated T5 differs from T5 in its feed-forward layers, and Qwen2 from its windowed form in masks:
# two other tests have them.
LIKE_OTHERS = ("qwen2", "t5_gated")
TOKENS = jnp.asarray(recipes.tokens(), jnp.int32)


def close(ours: Any, theirs: np.ndarray, limit: float, valid: Any = None) -> None:
    ours = np.asarray(ours)
    if valid is not None:
        ours = ours[valid]
        theirs = theirs[valid]
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= limit * np.abs(theirs).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_states_and_logits_equal_the_reference_with_padding_and_dropout(
    loaded: Any, name: str
) -> None:
    model, params = loaded(name)
    run = jax.jit(functools.partial(_states, model))

    def stand_in(call: Any, arguments: Any, keywords: Any, context: Any) -> Any:
        if not isinstance(context.module, nn.Dropout) or context.module.deterministic:
            return call(*arguments, **keywords)
        return arguments[0] * recipes.pattern(arguments[0].shape[-1], context.module.rate)

    for side in recipes.SIDES:
        valid = recipes.mask(side)
        tokens = jnp.where(valid, TOKENS, 1) if name == "roberta" else TOKENS
        outputs = run(params, tokens, valid)
        for key, value in outputs.items():
            decoded = name.startswith("t5") and key != "encoded"
            close(value, reference(name, f"{side}/{key}"), 1e-5, None if decoded else valid)
        if side == "left":
            dropping = model.with_dropout(jax.random.key(0))
            with nn.intercept_methods(stand_in):
                dropped = jax.jit(functools.partial(_states, dropping))(params, tokens, valid)[
                    "states"
                ]
            close(
                dropped, reference(name, "dropped"), 1e-5, None if name.startswith("t5") else valid
            )


def _states(
    model: LanguageModel, params: Any, tokens: jax.Array, valid: jax.Array
) -> dict[str, jax.Array]:
    states, prompt = model.prefill(params, tokens, valid)
    if not model.config.has_decoder:
        return {"states": states.after}
    if not model.config.encoder_layers:
        logits = model.logits(params, states.after)
        return {"states": states.after, "before": states.before, "logits": logits}
    decoder = jnp.pad(tokens[:, : recipes.DECODER_LENGTH - 1], ((0, 0), (1, 0)))[:, None]
    written, _ = model.extend(params, prompt, decoder, jnp.ones(decoder.shape, bool))
    before = written.before[:, 0]
    after = written.after[:, 0]
    outputs = {"encoded": states.after, "states": after, "before": before}
    return outputs | {"logits": model.logits(params, after)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [extra(name) if name in LIKE_OTHERS else name for name in WRITERS])
def test_what_is_written_is_the_same_token_by_token(loaded: Any, name: str) -> None:
    model, params = loaded(name)
    stop = int(reference(name, "stop"))
    valid = recipes.mask("left")
    max_tokens = recipes.MAX_NEW_TOKENS

    def run(params: Any) -> Any:
        key = jax.random.key(0)
        sampling = Sampling(greedy=True)
        limits = Limits(max_tokens, (stop,))
        greedy = generation.generate(model, params, TOKENS, valid, key, limits, sampling)
        searched = beams.beam_search(model, params, TOKENS, valid, limits, recipes.BEAMS)
        return (greedy.tokens[:, 0], greedy.valid[:, 0]), searched

    (tokens, is_valid), searched = jax.jit(run)(params)
    _same_text(tokens, is_valid, reference(name, "greedy"), stop)
    rows = recipes.BATCH * recipes.BEAMS
    beams_found = (
        searched.tokens.reshape(rows, max_tokens),
        searched.valid.reshape(rows, max_tokens),
    )
    _same_text(*beams_found, reference(name, "beams"), stop)
    np.testing.assert_allclose(searched.scores.ravel(), reference(name, "beam_scores"), rtol=1e-5)


def _same_text(tokens: Any, valid: Any, theirs: np.ndarray, stop: int) -> None:
    """Equal up to each row's first stop; what transformers pads with behind it differs between its
    classes.
    """
    ours = [
        row[is_valid].tolist()
        for row, is_valid in zip(np.asarray(tokens), np.asarray(valid), strict=True)
    ]
    assert ours == [row[: row.index(stop) + 1] if stop in row else row for row in theirs.tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_scores_and_their_gradients(loaded: Any, name: str) -> None:
    model, params = loaded(name)
    prompt = TOKENS[:, :-2]
    candidates = TOKENS[:, None, -2:]

    def total(params: Any) -> tuple[jax.Array, Any]:
        if name == "roberta":
            return model.prefill(params, TOKENS, TOKENS > 0)[0].after[:, 0, :5].sum(), None
        valid = jnp.ones(prompt.shape, bool)
        scores = scoring.score(
            model, params, prompt, valid, candidates, jnp.ones(candidates.shape, bool)
        )
        return scores.total.sum(), scores.total[:, 0]

    gradient, scores = jax.jit(jax.grad(total, has_aux=True))(params)
    if name != "roberta":
        close(scores, reference(name, "score"), 1e-5)
        close(gradient["embedding"], reference(name, "score_gradient"), 1e-4)
    gradient_norms = norms(gradient, model)
    atol = 1e-5 if name == "roberta" else 1e-6
    np.testing.assert_allclose(
        gradient_norms, reference(name, "gradient_norms"), rtol=1e-4, atol=atol
    )


def norms(gradient: Any, model: LanguageModel) -> np.ndarray:
    """The norm of each tensor of a file, in the order of their names; a tensor may be several of
    our parameters.
    """
    squares: dict[str, float] = {}
    for entry in weights.entries(model.config):
        leaf = functools.reduce(lambda node, part: node[part], entry.path, gradient)
        squares[entry.name] = squares.get(entry.name, 0.0) + np.square(np.asarray(leaf)).sum()
    return np.sqrt([squares[name] for name in sorted(squares)])
