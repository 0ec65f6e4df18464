"""Measures a language model in this process as the judge: questions a second, with what prompts
begin with run once.

Questions compare generated messages, two each. As in an annotation, several questions begin with
the same message.

Baseline: a prompt runs from its first token to its last.

Both sides run in turns with the same weights and give the same answers. With `options.model`, a
folder or a hub name, it is a published model; else one of a made-up shape. Beside plain torch it is
measured by docs/studies/judge_beside_torch.py.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax import lm
from motif_jax.benchmarks import _language, result
from motif_jax.lm import config as configs
from motif_jax.lm import next_token
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.next_token import NextToken
from motif_jax.lm.tokens import TOKENS_OF_BATCH
from motif_jax.nets import products

# Shapes of published models that people judge with, and one for tests.
SHAPES: dict[str, dict[str, Any]] = {
    "smollm2_135m": {
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
    },
    "qwen2_0.5b": {
        "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True,
        "max_position_embeddings": 32768,
    },
    "tiny": {
        "model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True, "max_position_embeddings": 512,
    },
}  # fmt: skip
GPU_SIZE = {"shape": "qwen2_0.5b", "dtype": "bfloat16", "questions": 512, "batch": 128}
# Messages begin in one of few ways ("You see here"): so many of their tokens, in so many ways.
_BEGINNING_TOKENS, _BEGINNINGS = 4, 4
# Tokens of the verdicts; any would give the same rate.
VERDICTS = ([3], [4], [5])


def options() -> ConfigDict:
    """A model or a shape, the tokens of a question's parts, questions of a repeat, questions at a
    time.

    `dtype` is that of weights and computation, as `config.model.dtype` of the annotator. A question
    has the tokens that all share, those of two messages, and those of its end. The sizes are those
    of 876 questions about 3,000 pairs of `collect.py:quickstart` (NetHack), with SmolLM2's tokens:
    125 shared, 38.7 others; a message stands first in 3.4 questions.
    """
    return ConfigDict(
        {
            "model": "",
            "shape": "smollm2_135m",
            "dtype": "float32",
            "shared_tokens": 120,
            "message_tokens": 11,
            "end_tokens": 14,
            "questions_of_message": 4,
            # Of fewer questions, the empty packs of the last batch would be a greater share than in
            # an annotation.
            "questions": 256,
            "batch": 16,
            "baseline": True,
            "seconds": 3.0,
        }
    )


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    model, params = model_of(config)
    rng = np.random.default_rng(config.seed)
    shared = rng.integers(6, 64, chosen.shared_tokens).tolist()
    rows = prompts(chosen, shared, rng)
    scorer = NextToken(model, params, VERDICTS, shared, chosen.batch)
    calls = {"shared": answering(scorer, rows)}
    first = _language.first_step_seconds(calls["shared"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if chosen.baseline:
        calls["other"] = _each_alone(model, params, rows, chosen.batch)
    # Compiles the other side, too, before the clock runs.
    answers = {name: call() for name, call in calls.items()}
    apart = float(np.abs(answers["shared"] - answers["other"]).max()) if "other" in calls else None
    rates = _language.rates(config, calls, chosen.questions)
    return result(
        config,
        "questions/s",
        rates["shared"],
        "the same model with each prompt run from its first token",
        rates.get("other"),
        first_step_seconds=first,
        log_probabilities_apart=apart,
        **_tokens_a_question([row[len(shared) :] for row in rows], chosen.batch),
        weight_bytes=sum(leaf.nbytes for leaf in jax.tree.leaves(params)),
        peak_bytes_with_loading=peak,
        threads=_language.usable_cores(),
    )


def model_of(config: ConfigDict) -> tuple[LanguageModel, Any]:
    """The model of the options, and its weights: published or fresh ones."""
    chosen = config.options
    dtype = jnp.dtype(chosen.dtype)
    output_major = products.prefers_output_major()
    if chosen.model:
        loaded = lm.load(chosen.model, dtype, output_major=output_major)
        return loaded.model, loaded.params
    shape = configs.parse(SHAPES[chosen.shape])
    model = LanguageModel(shape, dtype, output_major=output_major)
    fresh = jax.jit(lambda key: jax.tree.map(lambda leaf: leaf.astype(dtype), model.init(key)))
    return model, fresh(jax.random.key(config.seed))


def prompts(sizes: ConfigDict, shared: list[int], rng: np.random.Generator) -> list[list[int]]:
    """Tokens of the questions."""

    def part(length: int) -> list[int]:
        # The verdicts have tokens 3 to 5, the tiny shape has 64.
        return rng.integers(6, 64, length).tolist()

    beginnings = [part(_BEGINNING_TOKENS) for _ in range(_BEGINNINGS)]

    def message() -> list[int]:
        beginning = beginnings[rng.integers(_BEGINNINGS)]
        return [*beginning, *part(sizes.message_tokens - _BEGINNING_TOKENS)]

    end = part(sizes.end_tokens)
    rows: list[list[int]] = []
    while len(rows) < sizes.questions:
        first = message()
        rows += [[*shared, *first, *message(), *end] for _ in range(sizes.questions_of_message)]
    return rows[: sizes.questions]


def _tokens_a_question(prompts: list[list[int]], batch: int) -> dict[str, float]:
    """Tokens behind the shared beginning: of a question, those of it that are run, and with the
    padding.
    """
    parts = next_token.batches(prompts, batch)
    count = len(prompts)
    return {
        "tokens_a_question": sum(map(len, prompts)) / count,
        "tokens_run_a_question": sum(sum(pack.computed) for part in parts for pack in part.packs)
        / count,
        "tokens_with_padding_a_question": sum(part.size * part.width for part in parts) / count,
    }


def _each_alone(
    model: LanguageModel, params: Any, rows: list[list[int]], batch: int
) -> Callable[[], np.ndarray]:
    """A call that answers prompts of one length, each from its first token."""
    # Prompts from their first token are long: a batch of them has to keep to the limit of tokens.
    size = max(1, min(batch, TOKENS_OF_BATCH // len(rows[0])))

    @jax.jit
    def log_probs(params: Any, tokens: jax.Array) -> jax.Array:
        states = model.prefill(params, tokens, jnp.ones(tokens.shape, bool))[0].after
        every_token = jax.nn.log_softmax(model.logits(params, states[:, -1]), axis=-1)
        return jnp.stack(
            [jax.nn.logsumexp(every_token[:, jnp.asarray(group)], axis=-1) for group in VERDICTS],
            axis=-1,
        )

    def call() -> np.ndarray:
        starts = range(0, len(rows), size)
        return np.concatenate(
            [log_probs(params, np.array(rows[start : start + size])) for start in starts]
        )

    return call


def answering(scorer: NextToken, rows: list[list[int]]) -> Callable[[], np.ndarray]:
    """A call that answers all rows: log-probabilities float32 [questions, verdicts]."""

    def call() -> np.ndarray:
        answers = np.zeros((len(rows), len(VERDICTS)), np.float32)
        for answered in scorer(rows):
            answers[answered.positions] = answered.log_probs
        return answers

    return call
