"""Makes a run folder of a reward that export_reward wrote, for agents to use.

    python -m motif_jax.launch --config=configs/import_reward.py --workdir=runs/imported_reward \\
        --config.file=reward.safetensors

Seconds. The same command again finds it done; a folder with something else is refused.
"""

from motif_jax.published.config import ImportRewardConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "import_reward", **section_keys(ImportRewardConfig)}
get_config = configs(KEYS)
