"""Shared parts of the benchmarks of language models: published shapes, prompts, and rates of
compared programs, which run in turns.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents
from motif_jax.core.devices import flops
from motif_jax.lm import config as configs
from motif_jax.lm.model import LanguageModel


def t5_shape(
    width: int, inner: int, layers: int, heads: int, key: int = 64, vocabulary: int = 32128
) -> dict[str, Any]:
    """The content of config.json of a T5: `inner` is the width of its feed-forward layers, `key`
    that of an attention head.
    """
    return {
        "model_type": "t5", "vocab_size": vocabulary, "d_model": width, "d_kv": key, "d_ff": inner, "num_layers": layers,
        "num_heads": heads, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
        "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip


def gpt2_shape(width: int, layers: int, heads: int, vocabulary: int = 50257) -> dict[str, Any]:
    """The content of config.json of a GPT-2 with 1,024 positions."""
    return {
        "model_type": "gpt2", "vocab_size": vocabulary, "n_positions": 1024, "n_embd": width, "n_layer": layers,
        "n_head": heads, "bos_token_id": vocabulary - 1, "eos_token_id": vocabulary - 1,
    }  # fmt: skip


# The content of config.json by name: published shapes, and two small ones.
SHAPES: dict[str, dict[str, Any]] = {
    "flan_t5_small": t5_shape(512, 1024, 8, 6),
    "flan_t5_large": t5_shape(1024, 2816, 24, 16),
    "gpt2": gpt2_shape(768, 12, 12),
    "gpt2_medium": gpt2_shape(1024, 24, 16),
    # used by the quick run in docs/glam.md
    "quick_t5": t5_shape(128, 256, 2, 4, key=32, vocabulary=512),
    "tiny_t5": t5_shape(16, 24, 1, 2, key=8, vocabulary=64),
    "tiny_gpt2": gpt2_shape(16, 1, 2, vocabulary=64),
}


def options(**sizes: Any) -> ConfigDict:
    """Options of a model and its prompts, with `sizes` added or in place of the defaults.

    `config.options.baseline=False` neither compiles nor measures the program that it is compared
    with.
    """
    return ConfigDict(
        {"prompt_tokens": 400, "dtype": "float32", **sizes, "baseline": True, "seconds": 3.0}
    )


class Subject(NamedTuple):
    """A model with fresh weights, prompts of random tokens, and candidates.

    Attributes:
      prompt: int32 [B, T].
      valid: bool [B, T], all True. It is an argument of programs, not a constant, as outside
        benchmarks: the compiler would fold a constant mask, which took 6 s in `generate_gpu`.
      candidates: int32 [B, N, S]; N may be 0.
    """

    model: LanguageModel
    params: Any
    prompt: jax.Array
    valid: jax.Array
    candidates: jax.Array


def subject(config: ConfigDict) -> Subject:
    """The model and the random tokens of a benchmark's options."""
    chosen = config.options
    settings = configs.parse(SHAPES[chosen.model])
    model = LanguageModel(settings, jnp.dtype(chosen.dtype))
    print_phase("devices")
    jax.local_devices()
    print_phase("parameters")
    fresh = model.init(jax.random.key(config.seed))
    params = jax.tree.map(lambda leaf: leaf.astype(chosen.dtype), fresh)
    rng = np.random.default_rng(config.seed)

    # Neither T5's tokens 0 and 1, which pad and end, nor GPT-2's last one, which does both.
    def tokens(*shape: int) -> jax.Array:
        return jnp.asarray(
            rng.integers(2, settings.vocab_size - 1, (chosen.batch_size, *shape)), jnp.int32
        )

    prompt = tokens(chosen.prompt_tokens)
    candidates = tokens(chosen.get("candidates", 0), chosen.get("candidate_tokens", 1))
    return Subject(model, params, prompt, jnp.ones(prompt.shape, bool), candidates)


def process_age() -> float:
    """Seconds since the start of this process, imports included."""
    return time.time() - psutil.Process().create_time()


def print_phase(name: str) -> None:
    """Prints what begins now and how old the process is, so that a run that is killed before its
    end shows how far it came.
    """
    print(f"phase {name} begins after {process_age():.1f} s", file=sys.stderr, flush=True)


def compiled(call: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """`call` as a compiled program with these arguments; prints the phases of compilation."""
    print_phase("trace")
    traced = jax.jit(call).trace(*arguments)
    print_phase("lower")
    lowered = traced.lower()
    print_phase("compile")
    return functools.partial(lowered.compile(), *arguments)


def first_step_seconds(step: Callable[[], Any]) -> float:
    """Runs `step` once; returns the seconds from the start of this process to the step's end, with
    imports and compilation.

    They are printed, too, for a run that is killed before its result.
    """
    print_phase("step")
    jax.block_until_ready(step())
    seconds = process_age()
    print(f"first step after {seconds:.1f} s", file=sys.stderr, flush=True)
    return seconds


def rates(
    config: ConfigDict, calls: Mapping[str, Callable[[], Any]], count: int
) -> dict[str, list[float]]:
    """Items a second of all `calls`, which make `count` items each; they run in turns, once a
    repeat.
    """
    measurements = {name: rate(call, count, config.options.seconds) for name, call in calls.items()}
    return alternate(measurements, config.repeats)


def alternate(
    measurements: Mapping[str, Callable[[], float]], repeats: int
) -> dict[str, list[float]]:
    """Rates by `measurements`, which run in turns, once a repeat, so that other load of the machine
    disturbs them alike.
    """
    rates_by_name: dict[str, list[float]] = {name: [] for name in measurements}
    for _ in range(repeats):
        for name, measure in measurements.items():
            rates_by_name[name].append(measure())
    return rates_by_name


def rate(call: Callable[[], Any], count: int, seconds: float) -> Callable[[], float]:
    """A measurement for `alternate`: items a second of `call`, which makes `count` items."""
    return lambda: count * _agents.calls_per_second(call, seconds)


def product_flops(call: Callable[..., Any], *arguments: Any) -> float:
    """Floating-point operations of `call` in matrix products."""
    jaxpr = jax.make_jaxpr(call)(*arguments).jaxpr
    return flops.product_flops(jaxpr, [True] * len(jaxpr.invars))[0]


def peak_share(config: ConfigDict, model_flops: float, seconds: float) -> dict[str, float]:
    """`model_flops` in `seconds` as a share of the device's rate of matrix products."""
    peak = _agents.matrix_product_rate(config.options.dtype)
    share = model_flops / seconds / peak
    return {
        "model_flops": model_flops,
        "matrix_product_flops_per_second": peak,
        "peak_share": share,
    }


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
