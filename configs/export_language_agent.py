"""Writes a language agent (GLAM) as a Hugging Face folder, which transformers opens, and vLLM where the model is a decoder.

    python -m motif_jax.launch --config=configs/export_language_agent.py --workdir=runs/export --config.agent=runs/gflan

Out comes model/: weights (low-rank additions merged), config, tokenizer, generation config, a card, values.safetensors with the value head and, where
the policy is a head, action_head.safetensors.
Publish it: hf upload USER/NAME runs/export/model
"""

from motif_jax.core import sections
from motif_jax.play.keys import CHECKPOINT
from motif_jax.schema import Key, configs

KEYS = {
    "stage": "export_language_agent",
    "seed": sections.SEED,
    "agent": Key(None, "run folder of train_language_agent or clone_behaviour", str),
    "checkpoint": CHECKPOINT,
}
get_config = configs(KEYS)
