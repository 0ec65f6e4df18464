"""Reads a .pth checkpoint of the published PyTorch system by PyTorch (the extra `torch`), without
running what is in it.

    python -m motif_jax.launch --config=configs/import_torch.py --workdir=runs/imported \\
        --config.file=checkpoint_9.pth --config.quantiles=reward_metrics/train_norm_quantiles.csv
    python -m motif_jax.launch --config=configs/import_torch.py:agent \\
        --workdir=runs/imported_agent --config.file=FILE.pth
    python -m motif_jax.launch --config=configs/import_torch.py:oni --workdir=runs/imported_oni \\
        --config.file=FILE.pth

    python -m motif_jax.launch --config=configs/import_torch.py:glam \\
        --workdir=runs/imported_gflan --config.file=model.checkpoint \\
        --config.agent.network.model=google/flan-t5-large

The last reads an agent of GLAM or of its behaviour cloning (docs/glam.md). The one before it reads
an agent of ONI (28 actions) with the labels and the classifier that its checkpoint holds; `:reward`
with its file reads the network of a learned ranking (its mean and variance are not in the file).
Out comes a run folder that agents, evaluate and explain_reward use like one trained here,
model.safetensors, and mapping.json: which tensor of the file became which layer. Seconds. Tensors
are matched by shape, order and hints in their names; where that leaves a choice it is asked for:
--config.names="reward_head/weight=THEIR.weight,...". The same command again finds it done; a folder
with something else is refused.
"""

from ml_collections import ConfigDict

from motif_jax.core import resources
from motif_jax.core.config import unknown_variant
from motif_jax.published.config import ImportTorchAgentConfig, ImportTorchConfig
from motif_jax.schema import section, section_keys

# Variant -> what the file holds, and the stage whose faithful config says what it is: its network
# and task.
VARIANTS = {
    "reward": ("reward", "train_reward"),
    "agent": ("agent", "train_agent"),
    "oni": ("agent", "oni"),
    # Of config.agent: network.model (a folder with the config and tokenizer of the model that was
    # trained), network.policy, level.
    "glam": ("language_agent", "train_language_agent"),
}


def get_config(variant: str | None = None) -> ConfigDict:
    if variant and variant not in VARIANTS:
        raise unknown_variant(variant, ("", *VARIANTS))
    kind, stage = VARIANTS[variant or "reward"]
    section_type = ImportTorchConfig if kind == "reward" else ImportTorchAgentConfig
    config = section({"stage": "import_torch", **section_keys(section_type)})
    config.kind = kind
    part = config["reward" if kind == "reward" else "agent"] = resources.config(stage, "faithful")
    if variant == "oni":
        part.environment.name = "NetHackScoreExtendedActions-v1"  # the task that it was trained on
    return config
