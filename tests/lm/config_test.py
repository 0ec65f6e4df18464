"""config.json: what null means, and features that would be left out in silence are refused."""

from __future__ import annotations

from typing import Any

import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm import config
from tests.lm import recipes
from tests.lm.models import parsed

# A config.json of each architecture, by its `model_type`.
CONFIGS = {values["model_type"]: values for values in recipes.CONFIGS.values()}
YARN = {"rope_parameters": {"rope_type": "yarn"}}
DYNAMIC = {"rope_parameters": None, "rope_scaling": {"type": "dynamic"}}
PART = {"rope_parameters": None, "partial_rotary_factor": 0.5}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("t5", {"model_type": "mamba"}, "model_type 'mamba' is not one of t5, gpt2, llama"),
        ("gpt2", {"activation_function": "mish"}, "activation 'mish' is not one of relu, gelu"),
        ("t5", {"feed_forward_proj": "gated-mish"}, "activation 'mish' is not one of relu, gelu"),
        ("gpt2", {"scale_attn_weights": False}, "other scales are not supported"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "other scales are not supported"),
        ("gemma3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
        ("gemma3", {"layer_types": ["full_attention"]}, "has 1 entries for 3 layers"),
        ("qwen2_windows", {"layer_types": ["full_attention", "chunked"]}, "has 'chunked'"),
        ("llama", YARN, "rotary positions of type 'yarn' are not supported"),
        ("llama", DYNAMIC, "rotary positions of type 'dynamic' are not supported"),
        ("llama", PART, "partial_rotary_factor is 0.5"),
        ("llama", {"eos_token_id": [1, 99999]}, "a token that begins or ends texts is 99999"),
        ("llama", {"bos_token_id": -1}, "a token that begins or ends texts is -1"),
    ],
)
def test_what_is_not_supported_is_refused(name: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=rf"^config\.json: .*{words}"):
        parsed(name, changes)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("quantization_config", {"quant_method": "gptq", "bits": 4}),
        ("compression_config", {"format": "pack-quantized"}),
        ("quantization", {"group_size": 64, "bits": 4}),
    ],
)
def test_a_quantised_checkpoint_is_refused(entry: str, value: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"{entry} says that the weights are quantised"):
        parsed("llama", {entry: value})


def test_null_counts_as_a_missing_entry() -> None:
    values = {
        **recipes.CONFIGS["llama"],
        "head_dim": None,
        "rope_scaling": None,
        "quantization_config": None,
    }
    values["rope_parameters"] = {**values["rope_parameters"], "partial_rotary_factor": None}

    assert config.parse(values) == config.parse(recipes.CONFIGS["llama"])


@pytest.mark.parametrize("architecture", CONFIGS)
def test_null_end_token_ends_no_text(architecture: str) -> None:
    settings = config.parse({**CONFIGS[architecture], "eos_token_id": None})

    assert settings.end_ids == ()
    assert config.parse(config.to_values(settings)) == settings


WINDOWED = {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 3}


def windows(architecture: str, **changes: Any) -> tuple[bool, ...]:
    """Which layers of a model have a window."""
    return config.parse({**CONFIGS[architecture], "layer_types": None, **changes}).local_layers


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_null_window_is_no_window(architecture: str) -> None:
    assert windows(architecture, **WINDOWED) == (False, True)
    assert windows(architecture, **{**WINDOWED, "sliding_window": None}) == ()


def test_llama_has_no_window() -> None:
    """transformers' Llama does not read these entries."""
    assert windows("llama", **WINDOWED) == ()


def test_layers_with_a_null_window_are_refused() -> None:
    values = {**CONFIGS["gemma3_text"], "sliding_window": None}

    with pytest.raises(UserError, match="sliding_window is null, and some layers have a window"):
        config.parse(values)
