"""Plays episodes of BabyAI-Text and writes the prompt and the action of every step, for cloning.

    python -m motif_jax.launch --config=configs/collect_trajectories.py \\
        --workdir=runs/bot_trajectories --config.policy=bot \\
        --config.environment.name=BabyAI-GoToLocal-v0
    python -m motif_jax.launch --config=configs/collect_trajectories.py \\
        --workdir=runs/gflan_trajectories --config.policy=runs/gflan

It writes trajectories.parquet (one row per step: episode, seed, step, prompt, action, reward),
trajectories.json (counts, returns, digest; written last), and with config.published the published
arrays. Stopped at any moment and started again, it loses at most the episodes in flight. The bot
makes 400,000 steps in a few minutes on two cores.
"""

from motif_jax.glam.config import CollectTrajectoriesConfig, LanguagePolicy, PlayedLevelKeys
from motif_jax.schema import configs, section_keys

KEYS = {
    "stage": "collect_trajectories",
    **section_keys(CollectTrajectoriesConfig),
    "environment": section_keys(PlayedLevelKeys),
    "network": section_keys(LanguagePolicy),  # of zero_shot
}
_SMOKE = {"environment.name": "BabyAI-GoToLocal-v0", "steps": 60, "lanes": 2, "workers": 1}
get_config = configs(KEYS, {"smoke": _SMOKE})
