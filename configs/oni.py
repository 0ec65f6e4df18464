"""Trains an agent whose intrinsic reward is learned while it plays, from a language model that runs beside it (ONI).

    python -m motif_jax.launch --config=configs/oni.py --workdir=runs/oni

asks the lexicon (a stand-in for a language model, which answers at once). A server that speaks the OpenAI protocol:

    python -m motif_jax.launch --config=configs/oni.py --workdir=runs/oni --config.annotator.kind=openai \\
        --config.annotator.openai.base_url=http://127.0.0.1:8000/v1 --config.annotator.openai.model=MODEL

No dataset is needed. Everything else is as in configs/train_agent.py; besides its files the run folder holds labels.jsonl,
the log of what the reward learned and when. `--config.reward.tape=RUN` plays the log of another run with the same config
again, without an annotator. See docs/oni.md.

Variants:
  (none)      the published hyperparameters; quirks of the published code off; one worker per core but one.
  faithful    the published command line, schedule and sizes, all published quirks on; needs a server.
  quickstart  a small network, classification, the lexicon; a few minutes on 2 cores.
  smoke       seconds: whether everything works.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.annotation import online
from motif_jax.support import resources
from motif_jax.support.config import all_compat_on, compat, unknown_variant

VARIANTS = ("", "faithful", "quickstart", "smoke")


def _reward(reward: ConfigDict) -> None:
    # retrieval: the labels themselves. classification: a network that is trained on them. ranking: one that is trained on
    # preferences between two messages. motif, table, bag_of_words: frozen, as in configs/train_agent.py. none: the task's
    # reward alone.
    reward.kind = "retrieval"
    reward.intrinsic_coefficient = 0.4  # published for retrieval on the score task
    # Run folder of this config whose labels are played again, at the same updates, in place of an annotator.
    reward.tape = placeholder(str)
    # retrieval: 'label' (1 for yes), or 'probability' (of yes, where the annotator gives one).
    # classification: 'label' (1 above the threshold), or 'probability' (the network's).
    reward.value = "label"
    reward.encoder = "lt_cnn"  # of the networks: or lt_cnn_small, which reads 128 bytes and is far cheaper
    reward.classifier = ConfigDict()
    reward.classifier.threshold = 0.5  # probabilities strictly above it are helpful
    reward.classifier.dropout = 0.1
    # ranking: normalised rewards at or below it become 0 (reward.normalise=False: raw rewards, and no threshold); what went
    # before counts `decay` of itself in the running moments with each batch (1: published).
    del reward.threshold  # of kind motif
    reward.threshold = -0.5
    reward.decay = 1.0
    # ranking: pairs are drawn from every Nth step, or each distinct text alike; so many a batch, while fewer than `waiting`
    # wait to be asked.
    reward.pairs = ConfigDict({"every": 10, "distinct": False, "a_batch": 10, "waiting": 200})
    reward.training = ConfigDict()
    reward.training.batch_size = 256
    reward.training.learning_rate = 1e-4
    # 'budget': the labels that come call for steps_per_arrival steps, taken beside the learner, at most steps_per_update of
    # them an update. 'published': all at once, and from 25,000 labels on one step an update.
    reward.training.schedule = "budget"
    reward.training.steps_per_arrival = 32
    reward.training.steps_per_update = 1
    # What is learned: 'label', or 'probability' (the annotator's, where it gives one).
    reward.training.target = "label"
    # Networks, and how many of their standard deviations are taken from their mean.
    reward.training.members = 1
    reward.training.deviations = 0.0
    # Number of the device that trains; 'auto': where rewards are computed, on the CPU beside accelerators.
    reward.training.device = "auto"


def get_config(variant: str | None = None) -> ConfigDict:
    variant = variant or ""
    if variant not in VARIANTS:
        raise unknown_variant(variant, VARIANTS)
    config = resources.config("train_agent", variant if variant in ("quickstart", "smoke") else "")
    _reward(config.reward)
    config.update(online.default_config())
    config.compat.update(
        compat(
            "oni_requeue",
            "oni_label_anywhere",
            "oni_extended_steps",
            "oni_untrained_reward",
            "oni_ranking_raw_reward",
        )
    )
    config.environment.name = "NetHackScoreExtendedActions-v1"
    config.seed = 1
    config.save_every_steps = 100_000_000
    config.keep_checkpoints = 3
    config.stats_episodes = 100
    if variant in ("", "faithful"):
        config.batch_size = 1024
        config.train_for_env_steps = 10_000_000_000
    if variant == "faithful":
        all_compat_on(config)
        config.matmul_precision = "highest"
        config.reward.training.schedule = "published"
        config.network.obs_scale = 1.0
        config.reward.extrinsic_scale = 1.0
        config.annotator.kind = "openai"
        config.annotator.openai.model = "Meta-Llama-3.1-8B-Instruct"
        config.annotator.openai.base_url = "http://localhost:9001/v1"
    elif variant == "quickstart":
        config.reward.kind = "classification"
        config.reward.encoder = "lt_cnn_small"
        config.reward.training.learning_rate = 1e-3
        config.save_every_steps = 100_000
    elif variant == "smoke":
        config.reward.extrinsic_coefficient = 0.0
        config.save_every_steps = 1_024
        config.annotator.store_dir = ""
    return config
