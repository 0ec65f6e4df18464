"""Makes a run folder of a reward that export_reward wrote, for agents to use.

    python -m motif_jax.launch --config=configs/import_reward.py --workdir=runs/imported_reward --config.file=reward.safetensors

Seconds. The same command again finds it done; a folder with something else is refused.
"""

from motif_jax.core import sections
from motif_jax.schema import Key, configs

KEYS = {
    "stage": "import_reward",
    "seed": sections.SEED,
    "file": Key(None, "file reward.safetensors of export_reward", str),
}
get_config = configs(KEYS)
