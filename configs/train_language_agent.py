"""Trains a language model as an agent, by PPO on BabyAI-Text (GLAM): it reads what it sees and scores the actions' words.

    python -m motif_jax.launch --config=configs/train_language_agent.py --workdir=runs/gflan --config.network.model=MODEL

MODEL is a folder with config.json, safetensors and tokenizer.json, or a name of the Hugging Face hub (google/flan-t5-large). Everything
else is as in configs/train_agent.py, with its files; evaluate, visualize, replay, report and compare take the run. See docs/glam.md.

Variants:
  (none)      the published hyperparameters, mended: 32 environments x 40 steps, 4 epochs, minibatches of 64.
  faithful    with the quirks of the released code.
  quickstart  what launch/quickstart_glam.sh runs: GoToLocal, a small MODEL, minutes on 2 cores.
  smoke       seconds: whether everything works; needs a small MODEL.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.support import resources
from motif_jax.support.config import all_compat_on, compat, unknown_variant

VARIANTS = ("", "faithful", "quickstart", "smoke")


def _environment() -> ConfigDict:
    environment = ConfigDict()
    environment.name = "BabyAI-MixedTrainLocal-v0"  # a level of BabyAI-Text
    environment.max_episode_steps = 5000  # cuts episodes off before the level's own limit
    text = environment.babyai_text = ConfigDict()
    text.kind = ""  # of task in the Mixed levels; '' draws it for each episode
    text.language = ""  # 'english', 'french', or '' for the level's own
    text.observations = 3  # in a prompt; of the actions between them one fewer
    text.actions = ACTIONS  # their names; those beyond the sixth change nothing
    # Objects besides those that a mission needs (published: 4, 8, 16); None: the level's own number.
    text.distractors = placeholder(int)
    text.change = ""  # of the words of prompts, see motif_jax/envs/babyai_text/changes.py; '' for none
    return environment


def _network() -> ConfigDict:
    network = ConfigDict()
    network.kind = "language"
    network.model = ""  # a folder, or a name of the Hugging Face hub
    network.pretrained = True  # False: fresh weights of the model's shapes
    network.keep_embedding = False  # with fresh weights: the folder's embeddings all the same
    network.policy = (
        "score"  # of the actions' words; or 'actions': a head on the state that the value is read from
    )
    network.by_length = False  # divides an action's log-probability by its number of tokens
    network.head_widths = (1024, 1024)  # of the value's hidden layers, and the action head's
    network.prompt_tokens = 512  # of the longest prompt
    network.dtype = "float32"  # or 'bfloat16', of the computation; parameters and losses are float32
    network.remat = (
        False  # computes a layer's activations again in the backward pass: less memory, a third more time
    )
    return network


def _algorithm() -> ConfigDict:
    algorithm = ConfigDict()
    algorithm.name = "ppo"
    algorithm.gamma = 0.99
    algorithm.gae_lambda = 0.99
    algorithm.clip_ratio = 0.2  # of the surrogate: [0.8, 1.2]
    algorithm.clip_value = 0.2
    algorithm.value_coefficient = 0.5
    algorithm.entropy_coefficient = 0.01
    algorithm.epochs = 4
    algorithm.minibatch_size = 64  # steps, of all devices together
    algorithm.microbatch_size = (
        16  # of a minibatch so many are run at a time on a device; changes memory alone
    )
    algorithm.normalise_advantage = False
    algorithm.positive_reward = True  # what a task takes away counts as 0, as published
    algorithm.broadcast_rows = (
        16  # with compat.glam_value_broadcast: steps that a process of the published system learns from
    )
    return algorithm


def get_config(variant: str | None = None) -> ConfigDict:
    variant = variant or ""
    if variant not in VARIANTS:
        raise unknown_variant(variant, VARIANTS)
    config = resources.config("train_agent", "")
    config.seed = 1
    config.train_for_env_steps = 1_500_000
    config.rollout = 40
    config.batch_size = 32 * 40
    # Play and learn in turns, as PPO is defined: the policy that learns is the one that has played.
    config.serial = config.on_policy = True
    config.environment = _environment()
    config.network = _network()
    config.algorithm = _algorithm()
    config.optimizer.learning_rate = 1e-6
    config.optimizer.eps = 1e-5
    config.optimizer.max_gradient_norm = 0.5
    config.reward.intrinsic_coefficient = 0.0
    config.reward.extrinsic_coefficient = 1.0
    config.reward.extrinsic_scale = 20.0
    config.reward.extrinsic_clip = 20.0
    config.actors.workers = 1
    config.actors.envs_per_worker = 32
    config.actors.groups_per_worker = 1
    config.actors.warmup_steps = 0
    config.save_every_steps = 12_800
    config.stats_episodes = 300
    config.compat = compat(
        "timeout_as_terminal", "quantile_two_decimals", "glam_value_broadcast", "glam_french_goal"
    )
    if variant == "faithful":
        all_compat_on(config)
        config.matmul_precision = "highest"
    elif variant == "quickstart":
        config.environment.name = "BabyAI-GoToLocal-v0"
        config.environment.babyai_text.observations = 1
        config.train_for_env_steps = 40_960
        config.network.head_widths = (128,)
        config.network.prompt_tokens = 48
        config.algorithm.gae_lambda = 0.95
        config.algorithm.epochs = 3
        config.algorithm.minibatch_size = config.algorithm.microbatch_size = 128
        config.algorithm.normalise_advantage = True
        config.optimizer.learning_rate = 5e-4
        config.reward.extrinsic_scale = 1.0
        config.save_every_seconds = 30.0
        config.log_every_seconds = 5.0
    elif variant == "smoke":
        config.environment.name = "BabyAI-GoToLocal-v0"
        config.environment.babyai_text.observations = 1
        config.train_for_env_steps = 256
        config.rollout = 16
        config.batch_size = 4 * 16
        config.actors.envs_per_worker = 4
        config.algorithm.epochs = 2
        config.algorithm.minibatch_size = 32
        config.network.head_widths = (16,)
        config.save_every_steps = 128
        config.log_every_seconds = 1.0
    return config
