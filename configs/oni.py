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
    reward.value = "label"


def get_config(variant: str | None = None) -> ConfigDict:
    variant = variant or ""
    if variant not in VARIANTS:
        raise unknown_variant(variant, VARIANTS)
    config = resources.config("train_agent", variant if variant in ("quickstart", "smoke") else "")
    _reward(config.reward)
    config.update(online.default_config())
    config.compat.update(compat("oni_requeue", "oni_label_anywhere", "oni_extended_steps"))
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
        config.network.obs_scale = 1.0
        config.reward.extrinsic_scale = 1.0
        config.annotator.kind = "openai"
        config.annotator.openai.model = "Meta-Llama-3.1-8B-Instruct"
        config.annotator.openai.base_url = "http://localhost:9001/v1"
    elif variant == "quickstart":
        config.reward.kind = "classification"
        config.save_every_steps = 100_000
    elif variant == "smoke":
        config.reward.extrinsic_coefficient = 0.0
        config.save_every_steps = 1_024
    return config
