"""A config.json that no model has is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from motif_jax.lm import (
    config,
)
from tests.lm.models import parsed
from tests.refusals import refuses

MAX_SIZE = 1 << 24
CONFIGS: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", {"n_head": 0}, "config.json: n_head is 0, must be a whole number above 0"),
    ("gpt2", {"n_layer": 0}, "config.json: n_layer is 0, must be a whole number above 0"),
    ("gpt2", {"n_layer": 4097}, "config.json: layers is 4097, which no model has"),
    ("t5", {"num_layers": 4097}, "config.json: encoder_layers is 4097, which no model has"),
    ("t5", {"num_layers": -1}, "config.json: num_layers is -1, must be a whole number above 0"),
    (
        "gpt2",
        {"n_embd": 16777220, "n_inner": 1},
        "config.json: width is 16777220, which no model has",
    ),
    (
        "gpt2",
        {"vocab_size": True},
        "config.json: vocab_size is True, must be a whole number above 0",
    ),
    (
        "gpt2",
        {"n_positions": 2147483649},
        "config.json: max_length is 2147483649, which no model has",
    ),
    (
        "llama",
        {"num_key_value_heads": 4.0},
        "config.json: num_key_value_heads is 4.0, must be a whole number above 0",
    ),
    (
        "t5",
        {"model_type": 5},
        "config.json: model_type 5 is not one of t5, gpt2, llama, qwen2, qwen3, gemma3_text, roberta",
    ),
    (
        "gpt2",
        {"layer_norm_epsilon": "1"},
        "config.json: layer_norm_epsilon is '1', must be a number",
    ),
    (
        "gpt2",
        {"initializer_range": -1000000.0},
        "config.json: an epsilon, a scale or a dropout is not a number",
    ),
    (
        "gpt2",
        {"attn_pdrop": 1000000.0},
        "config.json: an epsilon, a scale or a dropout is not a number",
    ),
    (
        "gpt2",
        {"scale_attn_weights": False},
        "config.json: attention must be scaled by the width of a head, other scales are not supported",
    ),
    (
        "gpt2",
        {"scale_attn_by_inverse_layer_idx": True},
        "config.json: attention must be scaled by the width of a head, other scales are not supported",
    ),
    (
        "gpt2",
        {"activation_function": "mish"},
        "config.json: activation 'mish' is not one of relu, gelu, gelu_new, silu",
    ),
    ("llama", {"num_attention_heads": None}, "config.json: num_attention_heads is missing"),
    (
        "gemma3",
        {"final_logit_softcapping": 30.0},
        "config.json: final_logit_softcapping is 30.0, which is not supported",
    ),
    (
        "gemma3",
        {"use_bidirectional_attention": True},
        "use_bidirectional_attention is True, which is not supported",
    ),
    (
        "gemma3",
        {"layer_types": ["full_attention"]},
        "config.json: layer_types has 1 entries for 3 layers",
    ),
    (
        "qwen2_windows",
        {"layer_types": ["full_attention", "chunked_attention"]},
        "config.json: layer_types has 'chunked_attention', must be full_attention or sliding_attention",
    ),
    (
        "qwen2_windows",
        {"sliding_window": 0},
        "config.json: sliding_window is 0, must be a whole number above 0",
    ),
    (
        "llama",
        {"rope_parameters": {"rope_type": "yarn"}},
        "config.json: rotary positions of type 'yarn' are not supported",
    ),
    (
        "t5",
        {"feed_forward_proj": "gated-mish"},
        "config.json: activation 'mish' is not one of relu, gelu, gelu_new, silu",
    ),
    (
        "llama",
        {"rope_parameters": None, "rope_scaling": {"type": "dynamic"}},
        "config.json: rotary positions of type 'dynamic' are not supported, which are default, linear, llama3",
    ),
    (
        "llama",
        {"eos_token_id": [1, 99999]},
        "config.json: a token that begins or ends texts is 99999, which a model with",
    ),
    ("llama", {"bos_token_id": -1}, "config.json: a token that begins or ends texts is -1"),
    (
        "llama",
        {"model_type": None, "stage": "train_text"},
        "config.json is of a run and not of a model: give the folder model/ of its export",
    ),
]


@pytest.mark.parametrize(("name", "changes", "words"), CONFIGS)
def test_a_config_that_no_model_has_is_refused(
    name: str, changes: dict[str, Any], words: str
) -> None:
    with refuses(words):
        parsed(name, changes)


def test_the_largest_config_is_read() -> None:
    largest = dict.fromkeys(("vocab_size", "n_embd", "n_inner"), MAX_SIZE) | {"n_layer": 4096}
    parsed("gpt2", {**largest, "n_positions": 1 << 31, "attn_pdrop": 0.5})


def test_a_config_that_is_no_object_is_refused() -> None:
    with refuses("holds a JSON list, must be an object"):
        config.parse([])  # type: ignore[arg-type]
