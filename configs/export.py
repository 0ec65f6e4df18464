"""Writes what was trained for others: a reward as one file, an agent as a Hugging Face folder.

    python -m motif_jax.launch --config=configs/export.py:reward --workdir=runs/export \\
        --config.reward.dir=runs/reward
    python -m motif_jax.launch --config=configs/export.py:text_agent --workdir=runs/export \\
        --config.agent=runs/ilql
    python -m motif_jax.launch --config=configs/export.py:language_agent --workdir=runs/export \\
        --config.agent=runs/gflan

reward writes reward.safetensors (tensors with a JSON header), which goes wherever a reward goes:
`motif_jax.rewards.load("reward.safetensors")`, `--config.reward.dir=reward.safetensors`;
configs/import.py:reward makes a run folder of it again. README.md beside it is its model card.

text_agent (of train_text) and language_agent (GLAM) write model/, which transformers opens, and
vLLM where the model is a decoder: weights (low-rank additions merged), config, tokenizer,
generation config, a card, and in values.safetensors Q and V or the value head. A policy that is a
head lies in action_head.safetensors. Publish them:

    hf upload USER/NAME runs/export . --include reward.safetensors --include README.md
    hf upload USER/NAME runs/export/model
"""

from ml_collections import ConfigDict

from motif_jax.published.config import EXPORTS, of_kind


def get_config(variant: str | None = None) -> ConfigDict:
    return of_kind("export", EXPORTS, variant)
