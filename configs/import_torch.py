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

from __future__ import annotations

import importlib.util
from pathlib import Path

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def _sibling(name: str, variant: str) -> ConfigDict:
    """The config of another stage, from the file beside this one."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(variant)


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, "", "reward", "agent", "oni", "glam"):
        raise unknown_variant(variant, ("", "reward", "agent", "oni", "glam"))
    config = ConfigDict()
    config.stage = "import_torch"
    config.seed = 0
    config.kind = {"oni": "agent", "glam": "language_agent"}.get(variant, variant or "reward")
    config.file = placeholder(str)
    config.names = ""  # choices by hand: LAYER/weight=NAME IN THE FILE, with commas between
    if config.kind == "reward":
        config.quantiles = placeholder(str)  # the published quantile file beside it; without it no threshold
        config.mean = placeholder(float)  # of the rewards; None: the file's reward_mean
        config.variance = placeholder(float)  # None: the file's reward_var
        config.quantile_row = -1  # which of its rows belongs to this checkpoint; -1: the last
        config.reward = _sibling("train_reward", "faithful")  # what the model reads: config.reward.network
    elif variant == "oni":
        config.agent = _sibling("oni", "faithful")
        config.agent.environment.name = "NetHackScoreExtendedActions-v1"  # the task that it was trained on
    elif variant == "glam":
        # Its network (network.model: a folder with the config and tokenizer of the model that was trained; network.policy) and level.
        config.agent = _sibling("train_language_agent", "faithful")
    else:
        config.agent = _sibling("train_agent", "faithful")  # its network and task
    return config
