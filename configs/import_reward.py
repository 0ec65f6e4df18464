"""Makes a run folder of a reward that export_reward wrote, for agents to use.

    python -m motif_jax.launch --config=configs/import_reward.py --workdir=runs/imported_reward --config.file=reward.safetensors

Seconds. The same command again finds it done; a folder with something else is refused.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "import_reward"
    config.seed = 0
    config.file = placeholder(str)  # reward.safetensors
    return config
