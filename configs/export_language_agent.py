"""Writes a language agent (GLAM) as a Hugging Face folder, which transformers opens, and vLLM where the model is a decoder.

    python -m motif_jax.launch --config=configs/export_language_agent.py --workdir=runs/export --config.agent=runs/gflan

Out comes model/: weights (low-rank additions merged), config, tokenizer, generation config, a card, values.safetensors with the value head and, where
the policy is a head, action_head.safetensors.
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
    config.stage = "export_language_agent"
    config.seed = 0
    config.agent = placeholder(str)  # run folder of train_language_agent or clone_behaviour
    config.checkpoint = "latest"  # latest, best or a step
    return config
