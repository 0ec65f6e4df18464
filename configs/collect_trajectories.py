"""Plays episodes of BabyAI-Text and writes the prompt and the action of every step, for cloning.

    python -m motif_jax.launch --config=configs/collect_trajectories.py --workdir=runs/bot_trajectories --config.policy=bot \\
        --config.environment.name=BabyAI-GoToLocal-v0
    python -m motif_jax.launch --config=configs/collect_trajectories.py --workdir=runs/gflan_trajectories --config.policy=runs/gflan

It writes trajectories.parquet (one row per step: episode, seed, step, prompt, action, reward), trajectories.json (counts, returns, digest; written
last), and with config.published the published arrays. Stopped at any moment and started again, it loses at most the episodes in flight. The bot
makes 400,000 steps in a few minutes on two cores.
"""

from motif_jax.core import resources
from motif_jax.glam.config import LevelPolicy
from motif_jax.play.keys import LANES, PLAYED_LEVEL, WORKERS
from motif_jax.schema import Key, configs, positive, section_keys

_AGENT = resources.config_file("train_language_agent")["KEYS"]
KEYS = {
    "stage": "collect_trajectories",
    **section_keys(LevelPolicy),
    "policy": Key("bot", "policy that plays, named as in configs/test_language_agent.py"),
    "steps": positive(400_000, "plays whole episodes until it has this many"),
    "successes": Key(False, "only episodes with success; 1,000 without one end the run"),
    # 4 bytes a letter.
    "published": Key(False, "also writes {bot_,}trajectories_{prompts,actions}_1.npy and status.json"),
    "workers": WORKERS,
    "lanes": LANES,
    "environment": _AGENT["environment"] | {"name": PLAYED_LEVEL},
    "network": _AGENT["network"],  # of zero_shot
}
_SMOKE = {"environment.name": "BabyAI-GoToLocal-v0", "steps": 60, "lanes": 2, "workers": 1}
get_config = configs(KEYS, {"smoke": _SMOKE})
