"""Writes an agent of train_text as a Hugging Face folder, which transformers and vLLM open.

    python -m motif_jax.launch --config=configs/export_text_agent.py --workdir=runs/export --config.agent=runs/ilql

Out comes model/: weights of the policy, config, tokenizer with the delimiters, generation config, a card, and values.safetensors with Q and V.
Publish it: hf upload USER/NAME runs/export/model
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "export_text_agent"
    config.seed = 0
    config.agent = placeholder(str)  # run folder of train_text or import_ilql, or its agent/
    return config
