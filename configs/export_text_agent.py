"""Writes an agent of train_text as a Hugging Face folder, which transformers and vLLM open.

    python -m motif_jax.launch --config=configs/export_text_agent.py --workdir=runs/export \\
        --config.agent=runs/ilql

Out comes model/: weights of the policy, config, tokenizer with the delimiters, generation config, a
card, and values.safetensors with Q and V.
Publish it: hf upload USER/NAME runs/export/model
"""

from motif_jax.published.config import ExportTextAgentConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "export_text_agent", **section_keys(ExportTextAgentConfig)}
get_config = configs(KEYS)
