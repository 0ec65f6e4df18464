"""Intrinsic rewards of observations: frozen or changing, with normalisation, threshold and a table of messages.

Three lines give the reward of any text:

    from motif_jax import rewards
    reward = rewards.load("runs/reward")
    print(reward("You see here a key."))
"""

from motif_jax.rewards.intrinsic import BatchMessages, IntrinsicReward, RewardSetup, RunSetup
from motif_jax.rewards.kinds import MOTIF, check, digest, kind_of, load_intrinsic
from motif_jax.rewards.message_table import MessageTable, Values
from motif_jax.rewards.normalisation import QUANTILE_LEVELS, Normalisation
from motif_jax.rewards.online_model import KINDS as LEARNED
from motif_jax.rewards.reward_function import RewardFunction, load

__all__ = [
    "LEARNED",
    "MOTIF",
    "QUANTILE_LEVELS",
    "BatchMessages",
    "IntrinsicReward",
    "MessageTable",
    "Normalisation",
    "RewardFunction",
    "RewardSetup",
    "RunSetup",
    "Values",
    "check",
    "digest",
    "kind_of",
    "load",
    "load_intrinsic",
]
