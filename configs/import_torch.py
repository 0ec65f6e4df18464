"""Reads a .pth checkpoint of the published PyTorch system, without PyTorch and without running what is in it.

    python -m motif_jax.launch --config=configs/import_torch.py --workdir=runs/imported --config.file=checkpoint_9.pth \
        --config.quantiles=reward_metrics/train_norm_quantiles.csv
    python -m motif_jax.launch --config=configs/import_torch.py:agent --workdir=runs/imported_agent --config.file=FILE.pth
    python -m motif_jax.launch --config=configs/import_torch.py:oni --workdir=runs/imported_oni --config.file=FILE.pth

    python -m motif_jax.launch --config=configs/import_torch.py:glam --workdir=runs/imported_gflan --config.file=model.checkpoint \
        --config.agent.network.model=google/flan-t5-large

The last reads an agent of GLAM or of its behaviour cloning (docs/glam.md). The one before it reads an agent of ONI (28 actions) with the labels and the classifier that its checkpoint holds; `:reward` with its file reads the network of a
learned ranking (its mean and variance are not in the file). Out comes a run folder that agents, evaluate and explain_reward use like one trained here, model.safetensors, and
mapping.json: which tensor of the file became which layer. Seconds. Tensors are matched by shape, order and hints in
their names; where that leaves a choice it is asked for: --config.names="reward_head/weight=THEIR.weight,...". The same
command again finds it done; a folder with something else is refused.
"""

from ml_collections import ConfigDict

from motif_jax.core import resources, sections
from motif_jax.core.config import unknown_variant
from motif_jax.schema import Key, non_negative, one_of, section

# Variant -> what the file holds, and the stage whose faithful config says what it is: its network and task.
VARIANTS = {
    "reward": ("reward", "train_reward"),
    "agent": ("agent", "train_agent"),
    "oni": ("agent", "oni"),
    # Of config.agent: network.model (a folder with the config and tokenizer of the model that was trained), network.policy, level.
    "glam": ("language_agent", "train_language_agent"),
}
KEYS = {
    "stage": "import_torch",
    "seed": sections.SEED,
    "kind": one_of(("reward", "agent", "language_agent"), "what the file holds, as the variant says"),
    "file": Key(None, "checkpoint to import, FILE.pth", str),
    "names": Key("", "choices by hand: LAYER/weight=NAME IN THE FILE, with commas between"),
}
REWARD = {
    "quantiles": Key(None, "the published quantile file beside it; None: no threshold", str),
    "mean": Key(None, "mean of the rewards; None: the file's reward_mean", float),
    "variance": non_negative(None, "variance of the rewards; None: the file's reward_var", float),
    "quantile_row": Key(-1, "row of that file for this checkpoint; -1: the last"),
}


def get_config(variant: str | None = None) -> ConfigDict:
    if variant and variant not in VARIANTS:
        raise unknown_variant(variant, ("", *VARIANTS))
    kind, stage = VARIANTS[variant or "reward"]
    config = section(KEYS | REWARD if kind == "reward" else KEYS)
    config.kind = kind
    part = config["reward" if kind == "reward" else "agent"] = resources.config(stage, "faithful")
    if variant == "oni":
        part.environment.name = "NetHackScoreExtendedActions-v1"  # the task that it was trained on
    return config
