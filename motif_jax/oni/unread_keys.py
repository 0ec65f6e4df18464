"""Keys of a reward that is learned online which its kind does not read."""

from __future__ import annotations

from typing import Any

from motif_jax.core import config as checks
from motif_jax.oni.config import LearnedReward

_KINDS = ("retrieval", "classification", "ranking")
_NETWORKS = ("classification", "ranking")
# Key of `reward` -> the kinds that read it. Keys that a variant of configs/oni.py sets are not
# here, since the variant may be used with any kind.
_READERS: dict[str, tuple[str, ...]] = {
    "quantile": (),
    "table": (),
    "vectors": (),
    "goal": (),
    "similarity": (),
    "normalise": ("ranking",),
    "value": ("retrieval", "classification"),
    "classifier.threshold": ("classification",),
    "classifier.dropout": ("classification",),
    "threshold": ("ranking",),
    "decay": ("ranking",),
    "pairs.every": ("ranking",),
    "pairs.distinct": ("ranking",),
    "pairs.a_batch": ("ranking",),
    "pairs.waiting": ("ranking",),
    "training.batch_size": _NETWORKS,
    "training.steps_per_arrival": _NETWORKS,
    "training.steps_per_update": _NETWORKS,
    "training.target": _NETWORKS,
    "training.device": _NETWORKS,
    "training.members": _NETWORKS,
    "training.deviations": _NETWORKS,
}
# Values of `threshold` in configs/train_agent.py, which may be used with these kinds, too.
_OF_FROZEN_REWARDS = ("quantile", "auto")


def check(reward: Any) -> None:
    """Raises UserError where the section `reward` has a value that its kind would not read. Kinds
    from outside the package may read any key.
    """
    if reward.kind not in _KINDS:
        return
    for key, readers in _READERS.items():
        default = checks.dotted(LearnedReward(), key)
        value = checks.dotted(reward, key)
        # Evaluations of the run read `quantile=None`: no threshold.
        is_neutral = value in (default, None, *_OF_FROZEN_REWARDS)
        allowed = f"left at {default!r}: a reward of kind '{reward.kind}' does not read it"
        checks.require(is_neutral or reward.kind in readers, f"reward.{key}", value, allowed)
