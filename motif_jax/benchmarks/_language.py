"""Shared parts of the benchmarks of language models: published shapes, prompts, and both sides in turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents
from motif_jax.language import config as configs
from motif_jax.language.model import LanguageModel
from motif_jax.support import config as checks

_T5 = {
    "model_type": "t5", "vocab_size": 32128, "d_kv": 64, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
_GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 50257,
    "n_positions": 1024,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
}
# The content of config.json by name: the published shapes, and two that run in a moment.
SHAPES: dict[str, dict[str, Any]] = {
    "flan_t5_small": {**_T5, "d_model": 512, "d_ff": 1024, "num_layers": 8, "num_heads": 6},
    "flan_t5_large": {**_T5, "d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_heads": 16},
    "gpt2": {**_GPT2, "n_embd": 768, "n_layer": 12, "n_head": 12},
    "gpt2_medium": {**_GPT2, "n_embd": 1024, "n_layer": 24, "n_head": 16},
    # That of the quick run of docs/glam.md.
    "quick_t5": {
        **_T5,
        "vocab_size": 512,
        "d_model": 128,
        "d_kv": 32,
        "d_ff": 256,
        "num_layers": 2,
        "num_heads": 4,
    },
    "tiny_t5": {
        **_T5,
        "vocab_size": 64,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 24,
        "num_layers": 1,
        "num_heads": 2,
    },
    "tiny_gpt2": {**_GPT2, "vocab_size": 64, "n_embd": 16, "n_layer": 1, "n_head": 2},
}


def options(**sizes: Any) -> ConfigDict:
    """Settings of a benchmark: `sizes`, and those that all have."""
    return ConfigDict({"prompt_tokens": 400, "dtype": "float32", **sizes, "seconds": 3.0})


def check(config: ConfigDict, architecture: str | None = None) -> None:
    """Raises UserError for a shape that is not known (or not of `architecture`), a dtype, or prompts that the model has no room for."""
    chosen = config.options
    known = tuple(name for name, shape in SHAPES.items() if architecture in (None, shape["model_type"]))
    checks.choice(config, "options.model", known)
    checks.choice(config, "options.dtype", ("float32", "bfloat16"))
    room = SHAPES[chosen.model].get("n_positions")
    if room is not None:
        most = room - chosen.get("new_tokens", chosen.get("candidate_tokens", 0))
        allowed = f"at most {most}, which the positions of {chosen.model} leave"
        checks.require(chosen.prompt_tokens <= most, "options.prompt_tokens", chosen.prompt_tokens, allowed)


class Subject(NamedTuple):
    """The subject of a benchmark: a model with fresh weights, and prompts of random tokens.

    Attributes:
      params: in the dtype of the computation.
      prompt: int32 [B, T]; all of it is text.
      valid: bool [B, T], True.
      candidates: int32 [B, N, S]; N is 0 where the benchmark has none.
    """

    model: LanguageModel
    params: Any
    prompt: jax.Array
    valid: jax.Array
    candidates: jax.Array


def subject(config: ConfigDict) -> Subject:
    """Makes it from the options and the seed."""
    chosen = config.options
    settings = configs.parse(SHAPES[chosen.model])
    model = LanguageModel(settings, jnp.dtype(chosen.dtype))
    params = jax.jit(lambda key: jax.tree.map(lambda leaf: leaf.astype(chosen.dtype), model.init(key)))(
        jax.random.key(config.seed)
    )
    rng = np.random.default_rng(config.seed)

    def tokens(*shape: int) -> jax.Array:
        return jnp.asarray(rng.integers(2, settings.vocab_size - 1, shape), jnp.int32)

    prompt = tokens(chosen.batch_size, chosen.prompt_tokens)
    shape = chosen.get("candidates", 0), chosen.get("candidate_tokens", 1)
    return Subject(model, params, prompt, jnp.ones(prompt.shape, bool), tokens(chosen.batch_size, *shape))


def in_turns(sides: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Rates of all sides, one of each a repeat, in turns."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, measure in sides.items():
            found[name].append(measure())
    return found


def rate(call: Callable[[], Any], count: int, seconds: float) -> Callable[[], float]:
    """A side: how many things a second `call`, which makes `count` of them, makes."""
    return lambda: count * _agents.calls_per_second(call, seconds)


def product_flops(call: Callable[..., Any], *arguments: Any) -> float:
    """Operations of all matrix products in `call`."""
    jaxpr = jax.make_jaxpr(call)(*arguments).jaxpr
    return _agents.product_flops(jaxpr, [True] * len(jaxpr.invars))[0]


def peak_share(config: ConfigDict, flops: float, seconds: float) -> dict[str, float]:
    """The share of the device's rate of matrix products that so many operations in so many seconds reach."""
    peak = _agents.matrix_product_rate(config.options.dtype)
    share = flops / seconds / peak
    return {"model_flops": flops, "matrix_product_flops_per_second": peak, "peak_share": share}


def threads() -> int:
    """Threads that both sides may use."""
    return len(os.sched_getaffinity(0))


def relative(ours: Any, theirs: Any) -> float:
    """Largest difference of two arrays or trees of them, by the largest value of each pair."""

    def apart(a: Any, b: Any) -> float:
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-12))

    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return max(apart(a, b) for a, b in pairs)
