"""The networks, algorithms and rewards that an agent's config may choose by `network.kind`,
`algorithm.name` and `reward.kind`.

Each has two entries 'module:Class': its section of the config, and the class that does the work. A
module is imported when its part is chosen, so `rl/` trains the agents of all methods and imports
none of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from motif_jax.core import entry_points
from motif_jax.core.entry_points import Registry


@dataclasses.dataclass(frozen=True)
class Choice(Registry):
    """Parts that have sections of their own in the config.

    Attributes:
      sections: short name -> 'module:Class' of the section.
    """

    sections: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def section(self, name: str) -> Any:
        """Imports the section of the package's part `name`; raises as `load`."""
        self.check(name)
        return entry_points.load_packaged(self.sections[name])


GAME = "game"
LANGUAGE = "language"
DRRN = "drrn"
# The networks: subclasses of `rl/agent_networks.py:NetworkKind`.
NETWORKS = Choice(
    "network.kind",
    {
        GAME: "motif_jax.rl.agent_networks:GameNetworkKind",
        LANGUAGE: "motif_jax.glam.network_kinds:LanguageNetworkKind",
        DRRN: "motif_jax.glam.network_kinds:DrrnNetworkKind",
    },
    custom="",
    sections={
        GAME: "motif_jax.nets.config:GameNetwork",
        LANGUAGE: "motif_jax.glam.config:LanguagePolicy",
        DRRN: "motif_jax.glam.config:DrrnPolicy",
    },
)

APPO = "appo"
# The algorithms: subclasses of `rl/algorithms/algorithm.py:Algorithm`.
ALGORITHMS = Choice(
    "algorithm.name",
    {
        APPO: "motif_jax.rl.algorithms.appo:AppoAlgorithm",
        "ppo": "motif_jax.rl.algorithms.ppo:PpoAlgorithm",
        DRRN: "motif_jax.glam.drrn_update:DrrnAlgorithm",
    },
    base="motif_jax.rl.algorithms.algorithm:Algorithm",
    custom="module:Class of a subclass of Algorithm",
    sections={
        APPO: "motif_jax.rl.algorithms.config:Appo",
        "ppo": "motif_jax.rl.algorithms.config:Ppo",
        DRRN: "motif_jax.glam.config:QLearning",
    },
)

MOTIF = "motif"
# Rewards that are learned while the agent plays, whose section has more keys.
LEARNED_REWARDS = ("retrieval", "classification", "ranking")
_FROZEN = "motif_jax.rl.config:AgentReward"
_LEARNED = "motif_jax.oni.config:LearnedReward"
# The intrinsic rewards: subclasses of `rl/intrinsic.py:RewardKind`.
REWARDS = Choice(
    "reward.kind",
    {
        MOTIF: "motif_jax.motif.reward.motif:MotifReward",
        "bag_of_words": "motif_jax.oni.bag_of_words:BagOfWordsReward",
        "any_text": "motif_jax.motif.reward.frozen_text:AnyTextReward",
        "none": "motif_jax.rl.intrinsic:NoReward",
        "retrieval": "motif_jax.oni.online:RetrievalReward",
        "table": "motif_jax.motif.reward.frozen_text:TableReward",
        "classification": "motif_jax.oni.classification:ClassificationReward",
        "ranking": "motif_jax.oni.ranking:RankingReward",
    },
    base="motif_jax.rl.intrinsic:RewardKind",
    custom="module:Class of a subclass of RewardKind",
    sections={
        MOTIF: _FROZEN,
        "bag_of_words": _FROZEN,
        "any_text": _FROZEN,
        "none": _FROZEN,
        "retrieval": _LEARNED,
        "table": _FROZEN,
        "classification": _LEARNED,
        "ranking": _LEARNED,
    },
)
FROZEN_REWARDS = tuple(name for name in REWARDS.parts if name not in LEARNED_REWARDS)
# Sections of an agent's config whose keys depend on one of them: that key, and the parts that it
# may name.
SECTIONS = {
    "algorithm": ("name", ALGORITHMS),
    "network": ("kind", NETWORKS),
    "reward": ("kind", REWARDS),
}
# Sections that only these rewards read.
LABEL_SECTIONS = {
    "annotator": "motif_jax.oni.config:OnlineAnnotator",
    "queue": "motif_jax.oni.config:Queue",
}
PROBES_SECTION = "motif_jax.glam.config:ProbeQuestions"
# Additions to a training, by the key that turns them on: subclasses of
# `rl/run_writer.py:TrainingHook`.
HOOKS = {
    "probes": "motif_jax.glam.training_hooks:ProbeHook",
    "published_files": "motif_jax.glam.training_hooks:PublishedLog",
    "tests": "motif_jax.glam.training_hooks:GeneralisationTrial",
}
