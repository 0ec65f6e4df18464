"""Trains a language model as an agent, by PPO on BabyAI-Text (GLAM): it reads what it sees and scores the actions' words.

    python -m motif_jax.launch --config=configs/train_language_agent.py --workdir=runs/gflan --config.network.model=MODEL

MODEL is a folder with config.json, safetensors and tokenizer.json, or a name of the Hugging Face hub (google/flan-t5-large). Everything
else is as in configs/train_agent.py, with its files; evaluate, visualize, replay, report and compare take the run. See docs/glam.md.

Variants:
  (none)      the published hyperparameters, mended: 32 environments x 40 steps, 4 epochs, minibatches of 64.
  faithful    with the quirks of the released code.
  faithful_first_release  with those of the code of the paper's time.
  aflan, npae, npa, npe   the published ablations: an action head (aflan); fresh weights with the model's embeddings and an action
              head (npae), with an action head alone (npa), with the embeddings alone (npe).
  drrn        the baseline without a language model: two small recurrent encoders, Q-learning from a memory; needs a
              --config.network.tokenizer. drrn_faithful: with the quirks of the released code.
  quickstart  what launch/quickstart_glam.sh runs: GoToLocal, a small MODEL, minutes on 2 cores.
  smoke       seconds: whether everything works; needs a small MODEL.
Several are joined by '+': faithful+npae.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.support import resources
from motif_jax.support.config import compat, compat_on, unknown_variant

# Quirks that exclude each other stand in one set each: those of the code since May 2023, and those of the paper's time.
_ALWAYS = (
    "timeout_as_terminal",
    "glam_value_broadcast",
    "glam_french_goal",
    "glam_untrained_dropout",
    "glam_fixed_kind_per_env",
)
FAITHFUL = (*_ALWAYS, "glam_raw_logit_score", "glam_pad_plus_one")
FAITHFUL_FIRST_RELEASE = (*_ALWAYS, "glam_scaled_probability_score", "glam_end_token")
# What the published names of agents stand for: (pretrained, keep_embedding, policy).
ABLATIONS = {
    "aflan": (True, False, "actions"),
    "npae": (False, True, "actions"),
    "npa": (False, False, "actions"),
    "npe": (False, True, "score"),
}
DRRN = ("drrn", "drrn_faithful")
VARIANTS = ("", "faithful", "faithful_first_release", *ABLATIONS, *DRRN, "quickstart", "smoke")


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
    # Of actions by their words: 'log_probability' (the sum of their tokens'), 'raw_logit' (of their logits), or
    # 'scaled_probability' (the product of their tokens', over the greatest of all actions').
    network.score = "log_probability"
    network.by_length = False  # divides an action's sum by its number of tokens
    # Where those tokens stand that the tokenizer puts round a text, such as T5's end: round the 'prompt', as the model was
    # pretrained, or 'nowhere', as in the released code.
    network.special_tokens = "prompt"
    network.head_widths = (1024, 1024)  # of the value's hidden layers, and the action head's
    network.prompt_tokens = (
        512  # of the longest prompt; batches are padded to the longest in them, to few lengths
    )
    network.dtype = "float32"  # or 'bfloat16', of the computation; parameters and losses are float32
    network.remat = (
        False  # computes a layer's activations again in the backward pass: less memory, a third more time
    )
    return network


def _lora() -> ConfigDict:
    lora = ConfigDict()
    # Layers that get low-rank additions, '*/attention/query,*/attention/value' say (docs/language.md); everything else but the
    # heads stays as it is. Empty: the whole model is learned.
    lora.patterns = ""
    lora.rank = 16
    lora.alpha = 32.0
    lora.base = "float32"  # what the frozen weights are kept in: 'float32', 'bfloat16', 'int8' or 'nf4'
    return lora


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
    # Steps of a sequence that gradients run back through, of networks with a memory; a language model has none: single steps.
    algorithm.recurrence = 1
    algorithm.normalise_advantage = False  # less their mean, over their standard deviation, of a batch
    # An update ends before the minibatch whose policy is further than so many nats from the one that played; None: it never does.
    algorithm.kl_limit = placeholder(float)
    algorithm.positive_reward = True  # what a task takes away counts as 0, as published
    algorithm.broadcast_rows = (
        16  # with compat.glam_value_broadcast: steps that a process of the published system learns from
    )
    return algorithm


def _drrn(config: ConfigDict) -> None:
    """DRRN (He et al. 2016) with the published sizes: 32 environments x 4 steps, then one step of learning."""
    for section in ("lora", "sharding", "probes"):
        del config[section]
    config.rollout = 4
    config.batch_size = 32 * 4
    config.keep_checkpoints = 1  # the memory is part of each
    config.save_every_steps = 150_000
    network = config.network = ConfigDict()
    network.kind = "drrn"
    network.tokenizer = ""  # a tokenizer.json, or a folder with one
    network.embedding = 128  # width of a token's
    network.hidden_size = 128  # of both encoders and of the layer before Q
    network.prompt_tokens = 512  # of the longest prompt
    algorithm = config.algorithm = ConfigDict()
    algorithm.name = "drrn"
    algorithm.gamma = 0.9
    algorithm.epochs = 1  # steps of learning after each batch, each on a draw of its own
    # Steps that are remembered, all of the published run. Each takes 2.5 bytes for each of network.prompt_tokens, in memory and checkpoints.
    algorithm.replay_steps = 1_500_000
    algorithm.replay_draw = 64  # steps of a draw, of all devices together
    algorithm.positive_reward = True  # what a task takes away counts as 0, as published
    config.optimizer.learning_rate = 1e-4
    config.optimizer.eps = 1e-8
    config.optimizer.max_gradient_norm = 5.0
    config.compat = compat(
        "timeout_as_terminal",
        "quantile_two_decimals",
        "glam_french_goal",
        "glam_fixed_kind_per_env",
        "drrn_first_observation",
    )


def get_config(variant: str | None = None) -> ConfigDict:
    variants = (variant or "").split("+")
    for name in variants:
        if name not in VARIANTS or (name in DRRN and len(variants) > 1):
            raise unknown_variant(variant, VARIANTS)
    config = resources.config("train_agent", "")
    config.seed = 1
    config.train_for_env_steps = 1_500_000
    config.rollout = 40
    config.batch_size = 32 * 40
    # Play and learn in turns, as PPO is defined: the policy that learns is the one that has played.
    config.serial = config.on_policy = True
    config.environment = _environment()
    # What the agent would do in fixed situations, asked before every update: 'own' (of 11 of ours those with no more observations
    # than its prompts; they are English, one that reads French is not asked), '' for none, or a JSON file as
    # configs/probes/babyai_text.json is; and each so many updates what it would without each of their clauses (0: never).
    config.probes = ConfigDict({"prompts": "own", "clauses_every": 50})
    config.published_files = True  # log.csv and distrib.csv under the published names and columns, too
    config.network = _network()
    config.lora = _lora()
    # For what does not fit one device: parameters and optimiser are split over fsdp x tensor of a host's devices (docs/language.md),
    # and updates also over those that are left, and over hosts. 1 and 1: every device holds all.
    config.sharding = ConfigDict({"fsdp": 1, "tensor": 1})
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
    config.actors.rebuild = True
    config.save_every_steps = 12_800
    config.stats_episodes = 300
    config.compat = compat(
        "timeout_as_terminal",
        "quantile_two_decimals",
        "glam_value_broadcast",
        "glam_french_goal",
        "glam_raw_logit_score",
        "glam_pad_plus_one",
        "glam_scaled_probability_score",
        "glam_end_token",
        "glam_untrained_dropout",
        "glam_fixed_kind_per_env",
    )
    for name in variants:
        _apply(config, name)
    return config


def _apply(config: ConfigDict, variant: str) -> None:
    if variant in ABLATIONS:
        network = config.network
        network.pretrained, network.keep_embedding, network.policy = ABLATIONS[variant]
    elif variant in ("faithful", "faithful_first_release"):
        compat_on(config, *(FAITHFUL if variant == "faithful" else FAITHFUL_FIRST_RELEASE))
        config.network.special_tokens = "nowhere"
        config.matmul_precision = "highest"
    elif variant in DRRN:
        _drrn(config)
        if variant == "drrn_faithful":
            quirks = [name for name in config.compat if name != "quantile_two_decimals"]
            compat_on(config, *quirks)
            config.matmul_precision = "highest"
    elif variant == "quickstart":
        config.environment.name = "BabyAI-GoToLocal-v0"
        config.environment.babyai_text.observations = 1
        config.train_for_env_steps = 40_960
        config.network.head_widths = (128,)
        config.network.prompt_tokens = 64
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
