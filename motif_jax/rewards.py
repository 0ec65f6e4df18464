"""Intrinsic rewards of observations: frozen or changing, with normalisation, threshold and a table
of messages.

Three lines give the reward of any text:

    from motif_jax import rewards
    reward = rewards.load("runs/reward")
    print(reward("You see here a key."))
"""

from motif_jax.motif.reward.normalisation import QUANTILE_LEVELS, Normalisation
from motif_jax.motif.reward.reward_function import RewardFunction, load
from motif_jax.oni.online_model import KINDS as LEARNED
from motif_jax.rl.choices import MOTIF
from motif_jax.rl.intrinsic import (
    BatchMessages,
    RewardKind,
    RewardSetup,
    RunSetup,
    check,
    digest,
    kind_of,
    load_intrinsic,
)
from motif_jax.rl.message_table import MessageTable, Values

__all__ = [
    "LEARNED",
    "MOTIF",
    "QUANTILE_LEVELS",
    "BatchMessages",
    "MessageTable",
    "Normalisation",
    "RewardFunction",
    "RewardKind",
    "RewardSetup",
    "RunSetup",
    "Values",
    "check",
    "digest",
    "kind_of",
    "load",
    "load_intrinsic",
]
