"""Plays episodes in the terminal: map, message, reward as a bar, action probabilities, value.

    python -m motif_jax.launch --config=configs/visualize.py --workdir=runs/watch \\
        --config.policy=agent --config.agent.dir=runs/agent

Keys: Space pauses, Right or . goes one step, + and - change the speed, n skips to the next rewarded moment, e to the end
of the episode, q quits. Without a terminal, or with --config.live=False, it plays without showing. Every episode leaves
WORKDIR/episode-00000.json (to be replayed) and what `forms` asks for, and ends with its 100 most frequent messages with
their normalised reward, and those that paid most.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import compat, unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    config = ConfigDict()
    config.stage = "visualize"
    config.seed = 0
    # 'random'; 'bot', where the environment has a scripted player (BabyAI-Text); 'agent' (that of agent.dir); the folder of
    # an agent run; or 'module:Class' of your own (playing/policies.py)
    config.policy = "random"
    config.agent = ConfigDict()
    config.agent.dir = placeholder(
        str
    )  # run folder of train_agent; the random policy plays in its environment
    config.agent.checkpoint = "latest"  # 'latest', 'best', or a step
    config.greedy = False  # take the most likely action instead of drawing one (networks only)
    config.episodes = 1
    config.live = True  # show it, where there is a terminal
    config.seconds_per_step = 0.125  # to begin with; 0: as fast as it goes
    config.top_messages = 100

    config.environment = ConfigDict()
    config.environment.name = placeholder(str)  # None: the agent's, or NetHackScore-v1; as in train_agent
    # Of gym:ID, as in train_agent; None: the agent's, or the defaults.
    config.environment.text = placeholder(str)
    config.environment.text_bytes = placeholder(int)
    config.environment.modules = placeholder(str)
    config.environment.max_episode_steps = placeholder(int)  # None: the agent's, or the environment's own

    config.reward = ConfigDict()  # the intrinsic reward to show
    # A reward run, or its .safetensors file; None: the agent's own, if it has one, with the settings that it trained with; '': none.
    config.reward.dir = placeholder(str)
    config.reward.step = placeholder(int)
    config.reward.normalise = True
    config.reward.quantile = placeholder(float)
    config.reward.quantile = 0.5
    config.reward.threshold = "quantile"  # or 'auto': above the texts that the judge called ties
    config.reward.count_exponent = 3.0

    config.forms = ConfigDict()  # what an episode leaves besides its recording
    config.forms.html = True  # a player
    config.forms.ttyrec = True  # for nle-ttyplay2
    config.forms.gif = False
    config.forms.mp4 = False  # needs ffmpeg
    config.forms.frames_per_second = 10.0
    config.forms.start = 0  # steps of gif and mp4: [start, stop), every `every`-th and the rewarded ones
    config.forms.stop = placeholder(int)
    config.forms.every = 1

    config.compat = compat("sober_mask", "oracle_patch_edge", "crop_row_offset", "message_count_off")

    if variant in (None, ""):
        return config
    if variant == "smoke":
        config.live, config.environment.max_episode_steps = False, 100
        return config
    if variant == "quickstart":
        return config
    raise unknown_variant(variant, ("", "smoke", "quickstart"))
