"""Tests how far an agent of BabyAI-Text gets where words, actions, objects or tasks are not those of its training.

    python -m motif_jax.launch --config=configs/test_language_agent.py --workdir=runs/gflan_tests --config.policy=runs/gflan
    python -m motif_jax.launch --config=configs/test_language_agent.py --workdir=runs/before --config.policy=zero_shot \\
        --config.network.model=MODEL --config.environment.name=BabyAI-GoToLocal-v0
    python -m motif_jax.launch --config=configs/test_language_agent.py --workdir=runs/random_tests --config.policy=random

Every test of every agent plays the episodes of the same seeds. Out come tests.json, tests.csv and table.md (success, return and length of each
test with intervals, and the change against none), tests/NAME/episodes.jsonl (a line an episode, also the resume point) and
return_per_episode/NAME.npy, the published arrays. Stopped at any moment and started again, it loses at most the episodes in flight.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support import resources
from motif_jax.support.config import default_workers, unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    config = ConfigDict()
    config.stage = "test_language_agent"
    config.seed = 0  # of the episodes' seeds, the same for every test
    # 'random'; 'bot'; 'zero_shot' (network.model as it is, before any training); the folder of an agent run (language, cloned,
    # DRRN, symbolic); or 'module:Class' of your own (playing/policies.py)
    config.policy = "random"
    config.agent = ConfigDict()
    config.agent.checkpoint = "latest"  # 'latest', 'best' (by the training's mean return), or a step
    # Names with commas between, or levels; 'all': every one that means something to the policy (docs/glam.md lists them) and whose
    # prompts are not too long for it. The first is always no_modification_test, which the others are compared with.
    config.tests = "all"
    # Of the test action_names: six names, or as many as the agent has actions; (): rotate left, rotate right, move ahead, ...
    config.action_names = ()
    config.episodes = 1000  # of each test
    config.prompt_tokens = placeholder(
        int
    )  # of the longest prompt; None: the training's, twice as many where words may take more
    config.greedy = False  # take the most likely action instead of drawing one (networks only)
    config.workers = default_workers()
    config.lanes = 32  # episodes of an agent played at a time; the network sees lanes / 2 at once
    config.resamples = 2000  # of the bootstrap
    config.confidence = 0.95  # of the intervals

    training = resources.config("train_language_agent")
    # Where a policy that is no agent run plays; an agent keeps the options of its training, on another level without kind and distractors.
    config.environment = training.environment
    config.environment.name = placeholder(str)  # None: the agent's, or BabyAI-MixedTrainLocal-v0
    config.network = training.network  # of zero_shot

    if variant in (None, ""):
        return config
    if variant == "smoke":
        config.episodes, config.lanes, config.resamples, config.workers = 4, 2, 200, 1
        config.tests = "no_modification_test,adj_synonym"
        return config
    raise unknown_variant(variant, ("", "smoke"))
