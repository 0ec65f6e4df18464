"""The intrinsic reward laid over episodes that were played."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from motif_jax.runtime.episode_worker import EpisodeRecord
from motif_jax.support.errors import UserError


class RatedEpisode(NamedTuple):
    """Intrinsic reward of every step of an episode, [T] each; row t belongs to the observation before action t.

    Attributes:
      uncounted: float64, normalised and thresholded, g(m_t).
      discounted: float64, g(m_t) / N_t ** beta, N_t the count of the message in the episode so far.
    """

    uncounted: np.ndarray
    discounted: np.ndarray


class EpisodeRater:
    """Computes what an intrinsic reward would have paid along an episode.

    The last message of an episode is never rewarded and the first one is, as in training: the reward belongs to the
    observation on which an action is chosen.

    Args:
      reward: from `motif_jax.rewards.load_intrinsic`; it must be a function of the text.
      count_exponent: beta.
    """

    def __init__(self, reward: Any, count_exponent: float) -> None:
        if reward.lookup is None:
            raise ValueError("this reward reads more than the text")
        self._reward, self._exponent = reward, count_exponent

    def rate(self, record: EpisodeRecord) -> RatedEpisode:
        """Returns the reward of every step of `record`, which must have texts."""
        by_text = np.asarray(self._reward.lookup(record.texts), np.float64)
        uncounted = by_text[record.text_index]
        return RatedEpisode(
            uncounted, uncounted / np.asarray(record.text_count, np.float64) ** self._exponent
        )


def load_rater(config: Any, spec: Any) -> EpisodeRater:
    """Loads the reward of `config` (dir, step, normalise, quantile, count_exponent) for episodes of `spec`.

    Raises:
      UserError: the folder holds no reward, or one that reads more than the text.
    """
    from motif_jax import rewards

    reward = rewards.load_intrinsic(config, spec)
    if reward.lookup is None:
        raise UserError(
            f"config.reward.dir={config.dir}: this reward reads more than the message, so it cannot be laid over "
            "episodes that keep messages alone"
        )
    return EpisodeRater(reward, config.count_exponent)
