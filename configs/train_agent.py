"""Trains an agent with APPO on a NetHack task, a trained intrinsic reward, or both.

    python -m motif_jax.launch --config=configs/train_agent.py --workdir=runs/agent \\
        --config.reward.dir=runs/reward

Only the task's reward: add --config.reward.intrinsic_coefficient=0 and leave reward.dir out. Only
the intrinsic reward: --config.reward.extrinsic_coefficient=0. Stopped at any moment and started
again with the same command it resumes from its last checkpoint, which is at most
`save_every_seconds` old, and begins new games.

Out come checkpoints/ (Orbax: the newest `keep_checkpoints` and the one with the best mean return),
metrics.jsonl, tensorboard/, episodes.jsonl (one line per finished game), and where asked for
recordings/ (`record_every`).
SIGTERM, SIGUSR1 and Ctrl-C save and end with exit code 75.

Variants:
  (none)      the published hyperparameters; quirks of the published code off; one worker per core
              but one (but two beside a GPU).
  faithful    the published command line: 24 workers x 20 environments, all published quirks on. 2e9
              steps: about 22 h at the 25,000 steps/s of the published baseline's machine (16 cores,
              one GPU).
  quickstart  a small network with its own learning rate; a few minutes on 2 cores.
  steering    games of 200 steps, a million of them in all, as launch/demo_steering.sh needs it.
  laptop      for a few million steps on 2 cores, with both rewards:
              docs/studies/nethack_long.md.
  smoke       seconds: whether everything works.
  recall      Recall-v0, which needs a memory and no game: learned within 300,000 steps, half a
              minute on 2 cores.
  minigrid    DoorKey-8x8 with captions of events, a reward learned from them and the task's:
              learned within 250,000 steps.
  crafter     Crafter by its symbols, with a reward learned from captions and the task's: 250,000
              steps.
  gym         an environment of gymnasium that nobody has tuned, with its own rewards of any size:
              docs/environments.md.
  gym_pixels  the same for an environment that shows pictures: docs/environments.md#pixels.
  symbolic    BabyAI by its codes and words instead of a language model's prompts, by PPO: the
              baseline of GLAM (docs/glam.md). Everything but the network is as in
              configs/train_language_agent.py. 400,000 steps.
  symbolic_faithful  the same with the quirks of the released code.
"""

from ml_collections import ConfigDict

from motif_jax.core import compat, resources
from motif_jax.core.config import available_cores
from motif_jax.envs.config import RecallOptions
from motif_jax.rl.config import AgentConfig, TrainedTask
from motif_jax.schema import configs, section, section_keys, update

KEYS = {
    "stage": "train_agent",
    **section_keys(AgentConfig),
    "environment": {**section_keys(TrainedTask), "recall": section_keys(RecallOptions)},
    "compat": compat.switches(
        "sober_mask oracle_patch_edge crop_row_offset seed_noop message_count_off vtrace_bootstrap timeout_as_terminal "
        "quantile_two_decimals"
    ),
}
_SMALL = {
    "network": {
        "image_features": 64,
        "vector_features": 32,
        "message_features": 64,
        "hidden_size": 64,
    },
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
# docs/studies/nethack_laptop.md has what was tried.
_LAPTOP = {
    "network": {"encoder": "tiles_underfoot", "image_features": 64, "vector_features": 32},
    "network.message_features": 32,
    "network.hidden_size": 64,
    "train_for_env_steps": 2_000_000,
    "batch_size": 1024,
    # A success on the staircase pays 5, and so does a new level in the score; a sentence of
    # normalised reward 1 as much as five points.
    "reward": {"extrinsic_coefficient": 1.0, "intrinsic_coefficient": 0.5, "by": "sentence"},
    "algorithm": {"value_normalisation": "popart", "advantage_scale": "returns"},
    "algorithm.value_statistics_rate": 1e-3,
    "algorithm.exploration_coefficient": 0.001,
    # Four optimiser steps an update: they are cheap beside the game.
    "algorithm.epochs": 2,
    "algorithm.minibatches": 2,
    "optimizer": {"learning_rate": 1e-3, "schedule": "linear"},
    # The games are the limit and not the network: with a core left to the learner, that waits.
    "actors": {"workers": available_cores(), "envs_per_worker": 64},
    "save_every_steps": 500_000,
    "save_every_seconds": 60.0,
    "stats_episodes": 100,
    "log_every_seconds": 5.0,
}
# An update waits for the batch of its own policy: four passes over batches three updates old take
# CartPole up and down.
_GYM = {
    "environment.name": "gym:CartPole-v1",
    "network": {"hidden_size": 128, "flat_sizes": (128,), "observation_normalisation": "running"},
    "train_for_env_steps": 500_000,
    "batch_size": 1024,
    "rollout": 32,
    "on_policy": True,
    "algorithm": {
        "value_normalisation": "running",
        "value_statistics_rate": 1e-2,
        "epochs": 4,
        "minibatches": 4,
    },
    "algorithm.advantage": "gae",
    "algorithm.exploration_coefficient": 0.01,
    "optimizer": {"learning_rate": 1e-3, "schedule": "linear"},
    # Of any size: targets are divided by the spread of returns.
    "reward": {
        "intrinsic_coefficient": 0.0,
        "extrinsic_coefficient": 1.0,
        "extrinsic_scale": 1.0,
        "extrinsic_clip": 1e6,
        # docs/studies/pay.py
        "pay": "caused",
    },
    # One, whatever the cores: a batch is a rollout of each environment (`on_policy`).
    "actors": {"workers": 1, "envs_per_worker": 32},
    "save_every_steps": 100_000,
    "stats_episodes": 100,
    "log_every_seconds": 2.0,
}
VARIANTS = {
    "faithful": {
        **compat.switched_on(*KEYS["compat"]),
        "matmul_precision": "highest",
        "actors": {"workers": 24, "groups_per_worker": 2, "warmup_seconds": 10.0},
    },
    "quickstart": _QUICKSTART,
    "laptop": _LAPTOP,
    "steering": {
        **_LAPTOP,
        # The first room with what is in it, again and again: to look for more takes longer to
        # learn.
        "environment.max_episode_steps": 200,
        "train_for_env_steps": 1_000_000,
        # All that the judge preferred to silence is paid, and nothing else.
        "reward": {"extrinsic_coefficient": 0.0, "intrinsic_coefficient": 1.0},
        "reward.threshold": "auto",
        # A random player is paid once in some 400 steps: an update needs several of them.
        "batch_size": 2048,
        # What it has to learn lies some ten steps away: walk up to a monster and strike, walk over
        # gold.
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
        # A rate that is kept up unlearns a cue again.
        "optimizer": {"learning_rate": 3e-3, "schedule": "linear"},
        "algorithm.exploration_coefficient": 0.01,
        "reward": {
            "intrinsic_coefficient": 0.0,
            "extrinsic_coefficient": 1.0,
            "extrinsic_scale": 1.0,
        },
        "actors": {"envs_per_worker": 32, "warmup_steps": 6},
        "save_every_steps": 100_000,
        "stats_episodes": 500,
        "log_every_seconds": 2.0,
    },
    "gym": _GYM,
    "gym_pixels": (
        _GYM,
        {
            # Every installation has it. Its view is a picture of 7 x 7 codes; minigrid's wrappers
            # draw one.
            "environment": {"name": "gym:MiniGrid-Empty-Random-5x5-v0", "modules": "minigrid"},
            # Normalised pixel by pixel, pictures lose how bright a thing is beside what lies behind
            # it.
            "network": {
                "picture_normalisation": "picture",
                "nonlinearity": "relu",
                "image_features": 128,
            },
            # With four, half as many optimiser steps, learning sets in later.
            "algorithm.minibatches": 8,
            "train_for_env_steps": 200_000,
        },
    ),
    "minigrid": {
        "environment": {"name": "MiniGrid-DoorKey-8x8-v0", "max_episode_steps": 250},
        "network": {"hidden_size": 128, "flat_sizes": (128,)},
        "train_for_env_steps": 250_000,
        "batch_size": 512,
        "rollout": 16,
        "optimizer": {"learning_rate": 1e-3, "schedule": "linear"},
        "algorithm.exploration_coefficient": 0.01,
        # Paid five times as much, an agent collects captions and unlearns the goal, which ends
        # them.
        "reward": {"threshold": "auto", "intrinsic_coefficient": 0.1, "pay": "caused"},
        "reward.extrinsic_coefficient": 1.0,
        "reward.extrinsic_scale": 1.0,
        "actors.envs_per_worker": 32,
        "save_every_steps": 100_000,
        "stats_episodes": 100,
        "log_every_seconds": 2.0,
    },
    "crafter": {
        "environment": {"name": "Crafter-v1", "max_episode_steps": 1000},
        "network": {"hidden_size": 256, "flat_sizes": (256,)},
        "train_for_env_steps": 250_000,
        "batch_size": 1024,
        "rollout": 32,
        "optimizer": {"learning_rate": 1e-3, "schedule": "linear"},
        "algorithm.exploration_coefficient": 0.01,
        # An achievement takes some ten steps, and an episode of a beginner 200.
        "algorithm.gamma": 0.97,
        "reward": {"threshold": "auto", "intrinsic_coefficient": 0.1, "pay": "caused"},
        "reward.extrinsic_coefficient": 1.0,
        "reward.extrinsic_scale": 1.0,
        "actors": {"workers": 2, "envs_per_worker": 16},
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
    config.compat = section(compat.switches(f"quantile_two_decimals {_QUIRKS}"))
    config.train_for_env_steps, config.batch_size = 400_000, 64 * 40
    config.actors.envs_per_worker = 64
    update(config.algorithm, {"minibatch_size": 1280, "microbatch_size": 1280, "recurrence": 20})
    config.optimizer.learning_rate = 1e-4
    config.save_every_steps = 50 * config.batch_size
    if variant == "symbolic_faithful":
        update(config, {**compat.switched_on(*_QUIRKS.split()), "matmul_precision": "highest"})
    return config
