"""Plays episodes of BabyAI-Text and writes what was read and done at every step, for cloning.

    python -m motif_jax.launch --config=configs/collect_trajectories.py --workdir=runs/bot_trajectories --config.policy=bot \\
        --config.environment.name=BabyAI-GoToLocal-v0
    python -m motif_jax.launch --config=configs/collect_trajectories.py --workdir=runs/gflan_trajectories --config.policy=runs/gflan

Out come trajectories.parquet (a row a step: episode, seed, step, prompt, action, reward), trajectories.json (counts, returns, digest; written
last), and with config.published the published arrays. Stopped at any moment and started again, it loses at most the episodes in flight. The bot
makes 400,000 steps in a few minutes on two cores.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support import resources
from motif_jax.support.config import default_workers, unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    config = ConfigDict()
    config.stage = "collect_trajectories"
    config.seed = 0  # of the episodes' seeds
    config.policy = "bot"  # as in configs/test_language_agent.py
    config.agent = ConfigDict()
    config.agent.checkpoint = "latest"  # 'latest', 'best' (by the training's mean return), or a step
    config.steps = 400_000  # whole episodes until there are so many
    config.successes = False  # only episodes that reached their goal; 1,000 without one end the run
    config.published = (
        False  # also writes {bot_,}trajectories_{prompts,actions}_1.npy and status.json, 4 bytes a letter
    )
    config.greedy = False  # take the most likely action instead of drawing one (networks only)
    config.workers = default_workers()
    config.lanes = 32  # episodes of an agent played at a time; the network sees lanes / 2 at once

    training = resources.config("train_language_agent")
    # Where a policy that is no agent run plays; an agent keeps the options of its training, on another level without kind and distractors.
    config.environment = training.environment
    config.environment.name = placeholder(str)  # None: the agent's, or BabyAI-MixedTrainLocal-v0
    config.network = training.network  # of zero_shot

    if variant in (None, ""):
        return config
    if variant == "smoke":
        config.environment.name = "BabyAI-GoToLocal-v0"
        config.steps, config.lanes, config.workers = 60, 2, 1
        return config
    raise unknown_variant(variant, ("", "smoke"))
