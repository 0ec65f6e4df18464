"""The networks, algorithms and rewards that an agent's config may choose by `network.kind`,
`algorithm.name` and `reward.kind`.

Each has two entries 'module:Class': its section of the config, and the class that does the work. A
module is imported when its part is chosen, so `rl/` trains the agents of all methods and imports
none of them. To add a part, write its section and its class, and add a line to each of its two
tables.
"""

from __future__ import annotations

from motif_jax.core.entry_points import Registry

GAME = "game"
LANGUAGE = "language"
DRRN = "drrn"
# The networks: subclasses of `rl/agent_networks.py:NetworkKind`.
NETWORKS = Registry(
    "network.kind",
    {
        GAME: "motif_jax.rl.game_network:GameNetworkKind",
        LANGUAGE: "motif_jax.glam.network_kinds:LanguageNetworkKind",
        DRRN: "motif_jax.glam.network_kinds:DrrnNetworkKind",
    },
    custom="",
)
NETWORK_SECTIONS = Registry(
    "network.kind",
    {
        GAME: "motif_jax.nets.config:GameNetwork",
        LANGUAGE: "motif_jax.glam.config:LanguagePolicy",
        DRRN: "motif_jax.glam.config:DrrnPolicy",
    },
    custom="",
)

APPO = "appo"
# The algorithms: subclasses of `rl/algorithms/algorithm.py:Algorithm`, or classes of yours with its
# three abstract methods.
ALGORITHMS = Registry(
    "algorithm.name",
    {
        APPO: "motif_jax.rl.algorithms.appo:AppoAlgorithm",
        "ppo": "motif_jax.rl.algorithms.ppo_update:PpoAlgorithm",
        DRRN: "motif_jax.glam.drrn_update:DrrnAlgorithm",
    },
)
ALGORITHM_SECTIONS = Registry(
    "algorithm.name",
    {
        APPO: "motif_jax.rl.algorithms.config:Appo",
        "ppo": "motif_jax.rl.algorithms.config:Ppo",
        DRRN: "motif_jax.glam.config:QLearning",
    },
)

MOTIF = "motif"
# The intrinsic rewards: subclasses of `rl/intrinsic.py:RewardKind`.
REWARDS = Registry(
    "reward.kind",
    {
        MOTIF: "motif_jax.motif.reward.motif:MotifReward",
        "bag_of_words": "motif_jax.oni.bag_of_words:BagOfWordsReward",
        "any_text": "motif_jax.motif.reward.frozen_text:AnyTextReward",
        "none": "motif_jax.rl.reward_kinds:NoReward",
        "retrieval": "motif_jax.oni.online:RetrievalReward",
        "table": "motif_jax.motif.reward.frozen_text:TableReward",
        "classification": "motif_jax.oni.classification:ClassificationReward",
        "ranking": "motif_jax.oni.ranking:RankingReward",
    },
    base="motif_jax.rl.intrinsic:RewardKind",
    custom="module:Class of a subclass of RewardKind",
)
# Those that are learned while the agent plays, whose section has more keys.
LEARNED_REWARDS = ("retrieval", "classification", "ranking")
FROZEN_REWARDS = tuple(name for name in REWARDS.parts if name not in LEARNED_REWARDS)
_FROZEN = "motif_jax.rl.config:AgentReward"
_LEARNED = "motif_jax.oni.config:LearnedReward"
REWARD_SECTIONS = Registry(
    "reward.kind",
    {name: _LEARNED if name in LEARNED_REWARDS else _FROZEN for name in REWARDS.parts},
)
# Sections of an agent's config whose keys depend on one of them: that key, and the sections of the
# parts that it may name.
SECTIONS = {
    "algorithm": ("name", ALGORITHM_SECTIONS),
    "network": ("kind", NETWORK_SECTIONS),
    "reward": ("kind", REWARD_SECTIONS),
}
# Sections that only these rewards read.
LABEL_SECTIONS = {
    "annotator": "motif_jax.oni.config:OnlineAnnotator",
    "queue": "motif_jax.oni.config:Queue",
}
PROBES_SECTION = "motif_jax.glam.config:ProbeQuestions"
# Additions to a training, by the key that turns them on: subclasses of
# `rl/training_hook.py:TrainingHook`.
HOOKS = {
    "probes": "motif_jax.glam.training_hooks:ProbeHook",
    "published_files": "motif_jax.glam.training_hooks:PublishedLog",
    "tests": "motif_jax.glam.training_hooks:GeneralisationTrial",
}
