"""Writes a language agent (GLAM) as a Hugging Face folder, which transformers opens, and vLLM where
the model is a decoder.

    python -m motif_jax.launch --config=configs/export_language_agent.py --workdir=runs/export \\
        --config.agent=runs/gflan

Out comes model/: weights (low-rank additions merged), config, tokenizer, generation config, a card,
values.safetensors with the value head and, where the policy is a head, action_head.safetensors.
Publish it: hf upload USER/NAME runs/export/model
"""

from motif_jax.published.config import ExportLanguageAgentConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "export_language_agent", **section_keys(ExportLanguageAgentConfig)}
get_config = configs(KEYS)
