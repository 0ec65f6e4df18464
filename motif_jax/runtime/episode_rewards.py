"""The intrinsic reward laid over episodes that were played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

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
      lookup: texts uint8 [N, L] -> rewards float32 [N], normalised and thresholded.
      count_exponent: beta.
    """

    def __init__(self, lookup: Callable[[np.ndarray], np.ndarray], count_exponent: float) -> None:
        self._lookup, self._exponent = lookup, count_exponent

    def rate(self, record: EpisodeRecord) -> RatedEpisode:
        """Returns the reward of every step of `record`, which must have texts."""
        if record.texts is None or record.text_index is None:
            raise ValueError("the episode has no texts to rate")
        by_text = np.asarray(self._lookup(record.texts), np.float64)
        uncounted = by_text[record.text_index]
        return RatedEpisode(
            uncounted, uncounted / np.asarray(record.text_count, np.float64) ** self._exponent
        )


def _lookup(config: Any, spec: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function of texts that the reward in `config` is.

    Raises:
      UserError: the folder holds no reward, or one that reads more than the text.
    """
    from motif_jax import rewards

    reward = rewards.load_intrinsic(config, spec)
    if reward is None or reward.lookup is None:
        raise UserError(
            f"config.reward.dir={config.dir}: this reward reads more than the message, so it cannot be laid over "
            "episodes that keep messages alone"
        )
    return reward.lookup


def load_rater(config: Any, spec: Any) -> EpisodeRater:
    """Loads the reward of `config` (dir, step, normalise, quantile, count_exponent) for episodes of `spec`.

    Raises:
      UserError: the folder holds no reward, or one that reads more than the text.
    """
    return EpisodeRater(_lookup(config, spec), config.count_exponent)


class TextReward(NamedTuple):
    """What a reward says of one text.

    Attributes:
      raw: the model's output.
      normalised: mean 0, variance 1 over the training texts.
      paid: after the threshold, before the count discount.
    """

    raw: float
    normalised: float
    paid: float


class TextRater:
    """The numbers of single texts, computed once each, for people who watch.

    Args:
      config: section `reward`: dir, step, normalise, quantile, count_exponent.
      spec: of the environment.
    """

    def __init__(self, config: Any, spec: Any) -> None:
        self.count_exponent = float(config.count_exponent)
        self._known: dict[bytes, TextReward] = {}
        self._lookups = []
        for normalise, quantile in ((False, None), (True, None), (config.normalise, config.quantile)):
            section = ConfigDict(
                {"dir": config.dir, "step": config.step, "normalise": normalise, "quantile": quantile}
            )
            self._lookups.append(_lookup(section, spec))

    def __call__(self, text: np.ndarray) -> TextReward:
        """Returns the numbers of `text` uint8 [L]."""
        key = text.tobytes()
        if key not in self._known:
            self._known[key] = TextReward(*(float(lookup(text[None])[0]) for lookup in self._lookups))
        return self._known[key]
