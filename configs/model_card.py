"""Writes the model card of a trained reward or agent.

    python -m motif_jax.launch --config=configs/model_card.py --workdir=runs/card --config.model=runs/reward
    python -m motif_jax.launch --config=configs/model_card.py --workdir=runs/card --config.model=runs/agent \\
        --config.evaluations=runs/evaluation,runs/evaluation_random --config.licence='CC-BY-NC 4.0'

Out comes WORKDIR/MODEL_CARD.md: data, annotator and prompts, numbers with intervals, limits, licence, settings, read from
the run and from the folders that it was made from. Seconds.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, "", "smoke", "quickstart"):
        raise unknown_variant(variant, ("", "smoke", "quickstart"))
    config = ConfigDict()
    config.stage = "model_card"
    config.seed = 0
    config.model = placeholder(str)  # run folder of train_reward or train_agent
    config.evaluations = ""  # folders of evaluations with commas between, the agent's first
    config.licence = ""  # of the weights
    config.notes = ""
    return config
