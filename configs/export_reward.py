"""Writes a trained reward as one safetensors file with a JSON header.

    python -m motif_jax.launch --config=configs/export_reward.py --workdir=runs/export_reward \\
        --config.reward.dir=runs/reward

Out comes reward.safetensors, which goes wherever a reward goes:
`motif_jax.rewards.load("reward.safetensors")`, `--config.reward.dir=reward.safetensors`;
configs/import_reward.py makes a run folder of it again. README.md beside it is its model card:
data, annotator and prompts, numbers, limits, licence, settings, read from the run and from the
dataset that it was made from. Publish it:

    hf upload USER/NAME runs/export_reward . --include reward.safetensors --include README.md
"""

from motif_jax.published.config import ExportRewardConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "export_reward", **section_keys(ExportRewardConfig)}
get_config = configs(KEYS)
