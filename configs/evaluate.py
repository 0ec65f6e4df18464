"""Plays seeded episodes of an agent or of the random policy and writes what they reached.

    python -m motif_jax.launch --config=configs/evaluate.py --workdir=runs/evaluation \\
        --config.policy=agent --config.agent.dir=runs/agent --config.episodes=100
    python -m motif_jax.launch --config=configs/evaluate.py --workdir=runs/evaluation_random \\
        --config.policy=random --config.agent.dir=runs/agent --config.reward.dir=runs/reward

Two evaluations with the same `seed` play the same games; the random policy plays in the agent's environment where one
is given. Out come episodes.jsonl (one line an episode, also the
resume point), episodes.parquet (the same as a table, with every action), evaluation.json (means, medians and
interquartile means with confidence intervals), table.md, and recordings/ where asked for. Stopped at any moment and
started again, it loses at most the episodes in flight.

100 episodes of the random policy take about 10 seconds on two cores, of the published agent network minutes.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import compat, default_workers, unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    config = ConfigDict()
    config.stage = "evaluate"
    config.seed = 0  # of the episodes' seeds; equal seeds play equal games
    # 'random'; 'bot', where the environment has a scripted player (BabyAI-Text); 'agent' (that of agent.dir); the folder of
    # an agent run; or 'module:Class' of your own (playing/policies.py)
    config.policy = "random"
    config.agent = ConfigDict()
    config.agent.dir = placeholder(
        str
    )  # run folder of train_agent; the random policy plays in its environment
    config.agent.checkpoint = (
        "latest"  # 'latest', 'best' (by the training's mean return), a step; 0: before its training
    )
    config.greedy = False  # take the most likely action instead of drawing one (networks only)
    config.bot_agreement = False  # measures at how many steps the scripted player would have done the same
    config.episodes = 100
    config.workers = default_workers()
    config.lanes = 32  # episodes of an agent played at a time; the network sees lanes / 2 at once
    config.record_every = 0  # every Nth episode leaves a recording and a player; 0 leaves none
    config.show_best = 0  # so many of the best and of the worst episodes do, by intrinsic return, else return
    config.resamples = 2000  # of the bootstrap
    config.confidence = 0.95  # of the intervals

    config.environment = ConfigDict()
    config.environment.name = placeholder(str)  # None: the agent's, or NetHackScore-v1; as in train_agent
    # Of gym:ID, as in train_agent; None: the agent's, or the defaults.
    config.environment.text = placeholder(str)
    config.environment.text_bytes = placeholder(int)
    config.environment.modules = placeholder(str)
    config.environment.max_episode_steps = placeholder(int)  # None: the agent's, or the environment's own

    config.reward = ConfigDict()  # the intrinsic reward to score episodes with
    # A reward run, or its .safetensors file; None: the agent's own, if it has one, with the settings that it trained with; '': none.
    config.reward.dir = placeholder(str)
    config.reward.step = placeholder(int)  # None: the newest checkpoint
    config.reward.normalise = True
    config.reward.quantile = placeholder(float)  # None: no threshold
    config.reward.quantile = 0.5
    config.reward.threshold = "quantile"  # or 'auto': above the texts that the judge called ties
    config.reward.count_exponent = 3.0

    config.forms = ConfigDict()  # what a recorded episode leaves in recordings/ besides its .json
    config.forms.html = True  # a player
    config.forms.ttyrec = True  # for nle-ttyplay2
    config.forms.gif = False
    config.forms.mp4 = False  # needs ffmpeg
    config.forms.frames_per_second = 10.0
    config.forms.start = 0  # steps of gif and mp4: [start, stop), every `every`-th and the rewarded ones
    config.forms.stop = placeholder(int)
    config.forms.every = 1

    # Of the environment without an agent; with one, its own hold.
    config.compat = compat("sober_mask", "oracle_patch_edge", "crop_row_offset", "message_count_off")

    if variant in (None, ""):
        return config
    if variant == "smoke":
        config.episodes, config.lanes, config.resamples, config.workers = 4, 2, 200, 2
        config.environment.max_episode_steps = 200
        return config
    if variant == "quickstart":
        config.episodes, config.show_best = 300, 1
        return config
    raise unknown_variant(variant, ("", "smoke", "quickstart"))
