"""Which keys of config.vllm become arguments of vLLM's engine."""

from __future__ import annotations

import dataclasses

import pytest

from motif_jax.motif.annotation.config import AnnotatorConfig, VllmEngine
from motif_jax.motif.annotation.vllm_engine import engine_options

# Read by the annotator itself.
NO_ARGUMENTS = {"in_flight", "engine", "chat_template_kwargs"}
ARGUMENTS = sorted(field.name for field in dataclasses.fields(VllmEngine))


@pytest.mark.parametrize("key", ARGUMENTS)
def test_a_key_is_an_argument_of_the_engine(key: str) -> None:
    value = "{}" if key in NO_ARGUMENTS else "a value"
    engine = dataclasses.replace(VllmEngine(model="m"), **{key: value})

    options = engine_options(AnnotatorConfig(annotator="vllm", vllm=engine))

    assert (options.get(key) == value) == (key not in NO_ARGUMENTS)


def test_keys_without_a_value_are_left_to_vllm() -> None:
    options = engine_options(AnnotatorConfig(annotator="vllm", vllm=VllmEngine(model="m")))

    assert None not in options.values()
    assert "max_model_len" not in options


def test_options_as_json_count_more_than_keys() -> None:
    engine = VllmEngine(model="m", max_num_seqs=4, engine='{"max_num_seqs": 8, "seed": 3}')

    options = engine_options(AnnotatorConfig(annotator="vllm", vllm=engine))

    assert (options["max_num_seqs"], options["seed"]) == (8, 3)
