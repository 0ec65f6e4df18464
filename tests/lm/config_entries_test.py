"""Entries of config.json of another type, and quantised checkpoints, are refused in a line that
names them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm import config, config_file
from tests.lm import models, recipes

LINEAR = {"rope_type": "linear", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}

# A config.json of each architecture, by its `model_type`.
CONFIGS = {values["model_type"]: values for values in recipes.CONFIGS.values()}


def refusal(architecture: str, **changes: Any) -> str:
    values = {**CONFIGS[architecture], **changes}
    if "rope_scaling" in changes:
        values.pop("rope_parameters", None)
    with pytest.raises(UserError) as raised:
        config.parse(values, "config.json")
    return str(raised.value)


ENTRIES = [
    (architecture, layout[0])
    for architecture, fields in config.LAYOUTS.items()
    for layout in fields.values()
]
TEXTS = ("hidden_act", "hidden_activation", "activation_function")


@pytest.mark.parametrize(
    ("architecture", "entry"), [*ENTRIES, ("llama", "eos_token_id"), ("t5", "pad_token_id")]
)
@pytest.mark.parametrize("value", ["12", [1.5], {"a": 1}])
def test_entry_of_another_type_is_named(architecture: str, entry: str, value: Any) -> None:
    wrong = 12 if entry in TEXTS and isinstance(value, str) else value
    assert refusal(architecture, **{entry: wrong}).startswith(
        f"config.json: {entry} is {wrong!r}, must be "
    )


@pytest.mark.parametrize("ends", [[], [1, "2"], True, 1.0, [[1]]])
def test_end_token_that_is_no_number_is_named(ends: Any) -> None:
    assert "eos_token_id" in refusal("llama", eos_token_id=ends)


@pytest.mark.parametrize("heads", [0, -2, 2.0, True])
def test_heads_that_are_no_count_are_named(heads: Any) -> None:
    assert "num_attention_heads" in refusal("llama", num_attention_heads=heads)


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({**LINEAR, "factor": "4"}, "rope_scaling.factor is '4'"),
        ({**LINEAR, "factor": True}, "rope_scaling.factor is True"),
        ({**LINEAR, "factor": 0}, "rope_scaling.factor is 0"),
        ({"type": "linear"}, "rope_scaling.factor is missing"),
        ({**LINEAR, "rope_theta": "1e4"}, "rope_scaling.rope_theta is '1e4'"),
        ({"rope_type": ["linear"]}, "rope_scaling.rope_type is ['linear']"),
        (LLAMA3, "rope_scaling.original_max_position_embeddings is missing"),
        (
            {**LLAMA3, "original_max_position_embeddings": 8.5},
            "original_max_position_embeddings is 8.5",
        ),
        (
            {**LLAMA3, "original_max_position_embeddings": 8, "low_freq_factor": 4.0},
            "must be below",
        ),
        ("linear", "rope_scaling is 'linear', must be an object"),
        ([LINEAR], "rope_scaling is [{"),
    ],
)
def test_rotary_scaling_of_another_type_is_named(scaling: Any, words: str) -> None:
    assert words in refusal("llama", rope_scaling=scaling)


def test_part_of_a_head_with_rotary_positions_is_refused() -> None:
    assert "partial_rotary_factor is 0.5" in refusal("llama", partial_rotary_factor=0.5)


def test_null_counts_as_a_missing_entry() -> None:
    values = {
        **recipes.CONFIGS["llama"],
        "head_dim": None,
        "rope_scaling": None,
        "quantization_config": None,
    }
    assert config.parse(values) == config.parse(recipes.CONFIGS["llama"])


@pytest.mark.parametrize("architecture", CONFIGS)
def test_null_end_token_ends_no_text(architecture: str) -> None:
    settings = config.parse({**CONFIGS[architecture], "eos_token_id": None})

    assert settings.end_ids == ()
    assert config.parse(config_file.to_values(settings)) == settings


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
    words = "sliding_window is null, and some layers have a window"
    assert words in refusal("gemma3_text", sliding_window=None)


@pytest.mark.parametrize(
    ("entry", "value", "method"),
    [
        ("quantization_config", {"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes, load_in_8bit"),
        ("quantization_config", {"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes, load_in_4bit"),
        ("quantization_config", {"quant_method": "gptq", "bits": 4}, "gptq, bits=4"),
        ("quantization_config", {"quant_method": "fp8", "fmt": "e4m3"}, "fp8, fmt=e4m3"),
        ("compression_config", {"format": "pack-quantized"}, "pack-quantized"),
        ("quantization", {"group_size": 64, "bits": 4}, "bits=4"),
        ("quantization_config", "awq", "awq"),
    ],
)  # fmt: skip
def test_quantised_checkpoint_is_refused_with_its_method(
    entry: str, value: Any, method: str
) -> None:
    line = refusal("llama", **{entry: value})
    assert entry in line
    assert method in line
    assert "config.lora.base=int8 or nf4 quantises it here" in line


@pytest.mark.parametrize(
    "name", ["quantize_config.json", "quant_config.json", "hf_quant_config.json"]
)
def test_file_of_a_quantiser_is_refused(tmp_path: Path, name: str) -> None:
    folder = models.write(tmp_path, "llama")
    (folder / name).write_text("{}")
    with pytest.raises(UserError, match=f"{name} says that the weights are quantised"):
        config.read(folder)
