"""Trains an agent with APPO on a NetHack task, a trained intrinsic reward, or both.

    python -m motif_jax.launch --config=configs/train_agent.py --workdir=runs/agent --config.reward.dir=runs/reward

Only the task's reward: add --config.reward.intrinsic_coefficient=0 and leave reward.dir out. Only the intrinsic
reward: --config.reward.extrinsic_coefficient=0. Stopped at any moment and started again with the same command it resumes
from its last checkpoint, which is at most `save_every_seconds` old.

Out come checkpoints/ (Orbax: the newest `keep_checkpoints` and the one with the best mean return), metrics.jsonl,
tensorboard/, episodes.jsonl (one line per finished game), and recordings/ where asked for. SIGTERM, SIGUSR1 and Ctrl-C save and end with exit
code 75.

Variants:
  (none)      the published hyperparameters; quirks of the published code off; one worker per core but one.
  faithful    the published command line: 24 workers x 20 environments, all published quirks on. 2e9 steps: about 22 h
              at the 25,000 steps/s of the published baseline's machine (16 cores, one GPU).
  quickstart  a small network with its own learning rate; a few minutes on 2 cores.
  steering    games of 200 steps, a million of them in all, as launch/demo_steering.sh needs it.
  laptop      for a few million steps on 2 cores, with the task's reward alone: docs/results_laptop.md.
  smoke       seconds: whether everything works.
  recall      Recall-v0, which needs a memory and no game: learned within 300,000 steps, half a minute on 2 cores.
  minigrid    DoorKey-8x8 with captions of events, a reward learned from them and the task's: learned within 250,000 steps.
  symbolic    BabyAI by its codes and words instead of a language model's prompts, by PPO: the baseline of GLAM (docs/glam.md).
              Everything but the network is as in configs/train_language_agent.py. 400,000 steps.
  symbolic_faithful  the same with the quirks of the released code.
"""

from ml_collections import ConfigDict

from motif_jax import sections
from motif_jax.schema import (
    DTYPES,
    Key,
    configs,
    count,
    fraction,
    natural,
    one_of,
    positive,
    section,
    size,
    update,
    with_defaults,
)
from motif_jax.support import resources
from motif_jax.support.config import default_workers

NETWORK = {
    "encoder": one_of(
        ("auto", "nethack", "tiles", "tiles_underfoot", "flat", "film"),
        "'nethack' (window, status, message), 'flat' (all fields as numbers), 'auto': one of these by fields; 'tiles' (what 'nethack' "
        "reads, by embeddings in place of pictures: a tenth of the time), 'tiles_underfoot' (and remembers the tile that the hero "
        "covers); 'film' (BabyAI's view and instruction: image_features channels, words and the GRU that reads them "
        "message_features wide)",
    ),
    "image_encoder": one_of(("convnet_simple", "convnet_impala", "resnet_impala", "mlp"), "of the window"),
    "image_features": size(512, "of the window"),
    "vector_features": size(128, "of the status"),
    "message_features": size(128, "of the message"),
    "flat_sizes": size((128,), "layers of the flat encoder"),
    "obs_scale": positive(255.0, "pixels are divided by it"),
    "nonlinearity": one_of(("elu", "relu", "tanh"), "of the encoders"),
    "core": one_of(("gru", "lstm", "none"), "the memory"),
    "hidden_size": size(512, "of the core"),
    "core_layers": size(1, "of the core"),
    "head_sizes": size((), "layers, with tanh, before the heads of policy and value"),
    "separate_critic": Key(False, "the value has a network of its own"),
    "first_convolution": one_of(("auto", "table", "picture"), "looks tiles up (fast on CPU), or draws them"),
    "dtype": one_of(DTYPES, "of the computation; parameters, states, losses and targets are float32"),
}
ALGORITHM = {
    "name": Key("appo", "or module:Class of your own (motif_jax/algorithms/registry.py)"),
    "gamma": fraction(0.99, "discount of a step"),
    "advantage": one_of(("vtrace", "gae"), "how advantages are estimated"),
    # Where rewards are rare most batches hold none, and by its own spread a batch's noise becomes as large as they are.
    "advantage_scale": one_of(
        ("batch", "returns"),
        "what advantages are divided by: their standard deviation in the batch, or that of value targets of many batches "
        "('returns', with a value_normalisation)",
    ),
    "rho_clip": positive(1.0, "of V-trace's weights of temporal differences"),
    "c_clip": positive(1.0, "of V-trace's weights of traces"),
    "gae_lambda": fraction(0.95, "of gae"),
    "ratio_min": positive(0.05, "of the ratio of the policies, 1 where nothing has changed", below=1),
    "ratio_max": Key(20.0, "of the ratio of the policies, 1 where nothing has changed", above=1),
    "clip_ratio": positive(0.1, "of the surrogate: [1 / 1.1, 1.1]"),
    "clip_value": positive(1.0, "of the value's change"),
    "value_coefficient": natural(0.5, "of the value's loss"),
    "exploration": one_of(("entropy", "symmetric_kl", "none"), "the loss that keeps the policy exploring"),
    "exploration_coefficient": natural(0.003, "of that loss"),
    "epochs": positive(1, "over a batch"),
    # Each deals with a rollout of every `minibatches` consecutive ones: the same on any number of devices.
    "minibatches": positive(1, "of whole rollouts (docs/clusters.md)"),
    "max_policy_lag": positive(10_000, "updates; older rows are left out of the losses", below=1 << 31),
    "value_normalisation": one_of(("none", "running", "popart"), "of the targets of values"),
    "value_statistics_rate": fraction(3e-4, "of the statistics of value_normalisation"),
}
REWARD = {
    "kind": Key(
        "motif",
        "'motif': frozen, of the run in `dir`. 'table': the numbers of a file. 'bag_of_words': how much a message is like the goal. Or "
        "module:Class of your own (motif_jax/rewards/intrinsic.py). docs/rewards.md",
    ),
    "dir": Key(None, "run of train_reward, file of export_reward, or hf://OWNER/NAME; None: none", str),
    "step": sections.REWARD_STEP,
    "normalise": sections.NORMALISE,
    "quantile": sections.QUANTILE,
    "threshold": sections.THRESHOLD,
    "table": Key(None, "of kind table: JSON {text: number}, or a run of configs/oni.py; others get 0", str),
    "vectors": Key(None, "of kind bag_of_words: word vectors of fastText; None: hashed letters", str),
    "goal": Key("defaultgoal", "of kind bag_of_words: one of the prompts' goals, or a sentence"),
    "similarity": Key(-0.5, "of kind bag_of_words: the cosine above which a message is paid"),
    "count_exponent": sections.COUNT_EXPONENT,
    "intrinsic_coefficient": natural(0.1, "of the intrinsic reward"),
    "extrinsic_coefficient": natural(None, "None: 0.1 for the score tasks, 10 for the others", float),
    "extrinsic_scale": positive(0.1, "of the task's reward"),
    "extrinsic_clip": positive(10.0, "clips the task's reward, after the scale and before the coefficient"),
}
ACTORS = {
    "workers": positive(default_workers(), "processes that play, on every host"),
    "envs_per_worker": count(20, "environments of each"),
    "start_method": one_of(("auto", "fork", "exec"), "'exec': start each process by itself, more slowly"),
    "cores": Key("auto", "one a worker: 'auto' (claimed by no other run), '' for any, or '2,3,5'"),
    "groups_per_worker": positive(2, "one is stepped while the other waits for its actions"),
    "slots_per_group": positive(None, "rollouts a group can hold; None: as many as batches need", int),
    "warmup_steps": natural(32, "every environment starts with up to this many random steps"),
    "warmup_seconds": natural(0.0, "every worker starts with a random delay of up to this"),
    "timeout_seconds": positive(300.0, "a process that does not answer for this long is replaced"),
    "start_timeout_seconds": positive(120.0, "a process that takes longer than this to start is replaced"),
    # In serial runs nothing dies, and they are always remembered.
    "rebuild": Key(False, "games whose process died are replayed from seed and actions, in memory"),
    "max_failures": positive(3, "deaths of a process without a rollout between them until the run ends"),
}
DEVICES = {
    "learner": Key("all", "numbers of the devices that learn ('0,1'), or 'all'"),
    "actor": Key("first", "numbers of those that choose actions, 'all', or 'first' (of the learner's)"),
    "cpu_count": positive(None, "without a GPU: splits the CPU into this many devices", int),
}
KEYS = {
    "stage": "train_agent",
    "seed": sections.seed(777),
    "train_for_env_steps": positive(2_000_000_000, "of the whole run"),
    "batch_size": sections.batch(4096, "steps of an update, of all hosts together"),
    "rollout": count(32, "steps of a trajectory; gradients run back through all of them"),
    "max_waiting_batches": positive(1, "batches that wait for the learner until actors wait: policy lag"),
    # A run that is continued from a checkpoint plays its games on, from seeds and actions, and ends as one that was never
    # stopped (compat.seed_noop: it begins new games, which nobody can play again). On a GPU: docs/clusters.md, Precision.
    "serial": Key(False, "everything in one thread and in order: slow, and two runs are equal bit for bit"),
    # A batch has a rollout of every environment; actors play one group while the other's actions are chosen.
    "on_policy": Key(False, "plays a batch only after the update before it"),
    "environment": {
        "name": Key("NetHackScore-v1", "or 'gym:ID' of gymnasium, or module:Class (docs/environments.md)"),
        **sections.GYM,
        "max_episode_steps": positive(5000, "cuts episodes off"),
        "recall": {"cues": positive(4, "of Recall-v0"), "delay": positive(4, "of Recall-v0")},
    },
    "network": NETWORK,
    "algorithm": ALGORITHM,
    "optimizer": with_defaults(sections.OPTIMIZER, eps=1e-6, max_gradient_norm=4.0),
    "reward": REWARD,
    "actors": ACTORS,
    "devices": DEVICES,
    "hosts": sections.HOSTS,
    "nonfinite": sections.NONFINITE,
    "save_every_steps": positive(10_000_000, "between checkpoints"),
    "save_every_seconds": sections.SAVE_EVERY_SECONDS,
    "keep_checkpoints": positive(5, "the newest, besides the best"),
    "stats_episodes": positive(1000, "episodes over which statistics are means"),
    "record_every": natural(0, "every Nth game of each environment is recorded in recordings/; 0: none"),
    "log_every_seconds": positive(20.0, "between rows of metrics"),
    "matmul_precision": sections.MATMUL_PRECISION,
    "compile_cache": Key("auto", "folder of compiled programs; 'auto': in the user's cache folder, '': none"),
    "profile": sections.profile(5),
    "wandb": sections.WANDB,
    "compat": sections.compat(
        "sober_mask oracle_patch_edge crop_row_offset seed_noop message_count_off vtrace_bootstrap timeout_as_terminal "
        "quantile_two_decimals"
    ),
}
_SMALL = {
    "network": {"image_features": 64, "vector_features": 32, "message_features": 64, "hidden_size": 64},
    "network.flat_sizes": (64,),
}
_QUICKSTART = {
    **_SMALL,
    # Short games: within minutes they show whether the reward is learned.
    "environment.max_episode_steps": 500,
    "train_for_env_steps": 500_000,
    "batch_size": 512,
    "optimizer.learning_rate": 1e-3,
    "reward": {"extrinsic_coefficient": 0.0, "intrinsic_coefficient": 0.5},
    "actors.envs_per_worker": 40,
    "save_every_steps": 100_000,
    "save_every_seconds": 30.0,
    "stats_episodes": 100,
    "log_every_seconds": 5.0,
}
# docs/results_laptop.md has what was tried.
_LAPTOP = {
    "network": {"encoder": "tiles_underfoot", "image_features": 64, "vector_features": 32},
    "network.message_features": 32,
    "network.hidden_size": 64,
    "environment.max_episode_steps": 1000,
    "train_for_env_steps": 2_000_000,
    "batch_size": 1024,
    # A success on the staircase pays 5, and so does a new level in the score.
    "reward": {"extrinsic_coefficient": 1.0, "intrinsic_coefficient": 0.0},
    "algorithm": {"value_normalisation": "popart", "advantage_scale": "returns"},
    "algorithm.value_statistics_rate": 1e-3,
    "algorithm.exploration_coefficient": 0.001,
    # Four optimiser steps an update: they are cheap beside the game.
    "algorithm.epochs": 2,
    "algorithm.minibatches": 2,
    "optimizer": {"learning_rate": 1e-3, "schedule": "linear"},
    "actors": {"envs_per_worker": 128},
    "save_every_steps": 500_000,
    "save_every_seconds": 60.0,
    "stats_episodes": 100,
    "log_every_seconds": 5.0,
}
VARIANTS = {
    "faithful": {
        **sections.on(*KEYS["compat"]),
        "matmul_precision": "highest",
        "actors": {"workers": 24, "warmup_seconds": 10.0},
    },
    "quickstart": _QUICKSTART,
    "laptop": _LAPTOP,
    "steering": {
        **_LAPTOP,
        # The first room with what is in it, again and again: to look for more takes longer to learn.
        "environment.max_episode_steps": 200,
        "train_for_env_steps": 1_000_000,
        # All that the judge preferred to silence is paid, and nothing else.
        "reward": {"extrinsic_coefficient": 0.0, "intrinsic_coefficient": 1.0},
        "reward.threshold": "auto",
        # A random player is paid once in some 400 steps: an update needs several of them.
        "batch_size": 2048,
        # What it has to learn lies some ten steps away: walk up to a monster and strike, walk over gold.
        "algorithm.gamma": 0.98,
        "algorithm.exploration_coefficient": 0.003,
    },
    "smoke": {
        **_SMALL,
        "train_for_env_steps": 2_048,
        "batch_size": 128,
        "rollout": 16,
        "actors": {"workers": 2, "envs_per_worker": 4},
        "environment.max_episode_steps": 100,
        "reward.intrinsic_coefficient": 0.0,
        "save_every_steps": 1_024,
        "stats_episodes": 100,
        "log_every_seconds": 1.0,
    },
    "recall": {
        **_SMALL,
        "environment.name": "Recall-v0",
        "train_for_env_steps": 300_000,
        "batch_size": 512,
        "rollout": 16,
        "optimizer": {"learning_rate": 3e-3, "schedule": "linear"},  # kept up, the rate unlearns a cue again
        "algorithm.exploration_coefficient": 0.01,
        "reward": {"intrinsic_coefficient": 0.0, "extrinsic_coefficient": 1.0, "extrinsic_scale": 1.0},
        "actors": {"envs_per_worker": 32, "warmup_steps": 6},
        "save_every_steps": 100_000,
        "stats_episodes": 500,
        "log_every_seconds": 2.0,
    },
    "minigrid": {
        "environment": {"name": "MiniGrid-DoorKey-8x8-v0", "max_episode_steps": 250},
        "network": {"hidden_size": 128, "flat_sizes": (128,)},
        "train_for_env_steps": 250_000,
        "batch_size": 512,
        "rollout": 16,
        "optimizer": {"learning_rate": 1e-3, "schedule": "linear"},
        "algorithm.exploration_coefficient": 0.01,
        # Paid five times as much, an agent collects captions and unlearns the goal, which ends them.
        "reward": {"threshold": "auto", "intrinsic_coefficient": 0.1},
        "reward.extrinsic_coefficient": 1.0,
        "reward.extrinsic_scale": 1.0,
        "actors.envs_per_worker": 32,
        "save_every_steps": 100_000,
        "stats_episodes": 100,
        "log_every_seconds": 2.0,
    },
}
SYMBOLIC = {"symbolic": {}, "symbolic_faithful": {}}
_QUIRKS = "timeout_as_terminal glam_fixed_kind_per_env symbolic_train_mode_batchnorm"
_FILM = {
    "image_features": 128,
    "message_features": 128,
    "hidden_size": 128,
    "core": "lstm",
    "head_sizes": (64,),
}
_get_config = configs(KEYS, VARIANTS | SYMBOLIC)


def get_config(variant: str | None = None) -> ConfigDict:
    config = _get_config(variant)
    if variant not in SYMBOLIC:
        return config
    network = config.network
    config = resources.config("train_language_agent", "")
    for name in ("lora", "sharding", "probes"):
        del config[name]
    config.network = update(network, {"encoder": "film", **_FILM})
    config.compat = section(sections.compat(f"quantile_two_decimals {_QUIRKS}"))
    config.train_for_env_steps, config.batch_size = 400_000, 64 * 40
    config.actors.envs_per_worker = 64
    update(config.algorithm, {"minibatch_size": 1280, "microbatch_size": 1280, "recurrence": 20})
    config.optimizer.learning_rate = 1e-4
    config.save_every_steps = 50 * config.batch_size
    if variant == "symbolic_faithful":
        update(config, {**sections.on(*_QUIRKS.split()), "matmul_precision": "highest"})
    return config
