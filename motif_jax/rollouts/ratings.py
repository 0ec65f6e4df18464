"""Rates played episodes by an intrinsic reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.datasets.pairs import threshold
from motif_jax.rollouts.episode_worker import PlayedEpisode

# Observations that a reward of more than the text reads at a time.
_ROWS = 64


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
      lookup: texts uint8 [N, L] (with `fields`, observations [T, ...]) -> rewards float32 [N], normalised and thresholded.
      fields: observation fields that the episodes must keep to be rated; () for a reward of the text alone.
      description: the reward in one line for people.
    """

    def __init__(
        self,
        lookup: Callable[[Any], np.ndarray],
        count_exponent: float,
        fields: tuple[str, ...] = (),
        description: str = "",
    ) -> None:
        self._lookup, self.count_exponent = lookup, count_exponent
        self.fields, self.description = fields, description

    def rate(self, record: PlayedEpisode) -> RatedEpisode:
        if record.texts is None or record.text_index is None:
            raise ValueError("the episode has no texts to rate")
        if self.fields:
            paid = self._lookup({name: record.fields[name] for name in self.fields})
        else:
            paid = np.asarray(self._lookup(record.texts))[record.text_index]
        uncounted = np.asarray(paid, np.float64)
        return RatedEpisode(
            uncounted, uncounted / np.asarray(record.text_count, np.float64) ** self.count_exponent
        )


def _observation_lookup(reward: Any) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Returns fields [T, ...] -> rewards float32 [T], a few rows at a time: one program and little memory."""
    import jax

    program = jax.jit(reward.in_step)

    def compute(fields: Mapping[str, np.ndarray]) -> np.ndarray:
        length = len(fields[reward.fields[0]])
        size = 1 if length == 1 else _ROWS
        values = np.empty(length, np.float32)
        for start in range(0, length, size):
            part = {name: np.asarray(fields[name][start : start + size]) for name in reward.fields}
            count = min(size, length - start)
            padded = {
                name: np.pad(a, [(0, size - count)] + [(0, 0)] * (a.ndim - 1))[:, None]
                for name, a in part.items()
            }
            values[start : start + count] = np.asarray(program(reward.params, padded))[:count, 0]
        return values

    return compute


def count_exponent(config: Any, spec: Any) -> float:
    """The reward's count exponent if the task of `spec` shows counts, else 0, as in training."""
    return 0.0 if spec.count_field is None else float(config.count_exponent)


def load_rater(config: Any, spec: Any) -> EpisodeRater:
    """Loads the reward of `config`; UserError where there is none, or it reads what `spec` does not show."""
    from motif_jax import rewards

    reward = rewards.load_intrinsic(config, spec, config.get("two_decimals"))
    assert reward is not None
    exponent, about = count_exponent(config, spec), reward.description or config.kind
    if reward.in_step is not None:
        return EpisodeRater(_observation_lookup(reward), exponent, tuple(reward.fields), about)
    return EpisodeRater(lambda texts: reward.lookup(texts).values, exponent, (), about)


class TextReward(NamedTuple):
    """The reward of one observation.

    Attributes:
      raw: the model's output.
      normalised: mean 0, variance 1 over the training messages.
      paid: after the threshold, before the count discount.
    """

    raw: float
    normalised: float
    paid: float


def _as_it_is(raw: Any) -> Any:
    return raw


class LiveRater:
    """The numbers of single observations, for people who watch; of a text alone they are computed once."""

    def __init__(self, config: Any, spec: Any) -> None:
        from motif_jax import rewards
        from motif_jax.rewards.load import open_reward

        self.count_exponent = count_exponent(config, spec)
        self._known: dict[bytes, TextReward] = {}
        # What no normalisation belongs to is paid as it is.
        raw, self._normalise, self._pay = config, _as_it_is, _as_it_is
        if config.get("kind", rewards.MOTIF) == rewards.MOTIF:
            trained = open_reward(config.dir, config.step)
            self._normalise = trained.normalisation().normalise
            self._pay = trained.normalisation(
                config.normalise, threshold.level(config), config.get("two_decimals")
            )
            raw = ConfigDict({"dir": config.dir, "step": trained.step, "normalise": False, "quantile": None})
        reward = rewards.load_intrinsic(raw, spec)
        assert reward is not None
        self._of_text = reward.lookup
        self._fields = reward.fields
        self._of_observation = None if reward.in_step is None else _observation_lookup(reward)

    def __call__(self, text: np.ndarray, observation: Mapping[str, np.ndarray]) -> TextReward:
        if self._of_observation is not None:
            return self._numbers(
                self._of_observation({name: observation[name][None] for name in self._fields})
            )
        key = text.tobytes()
        if key not in self._known:
            self._known[key] = self._numbers(self._of_text(text[None]).values)
        return self._known[key]

    def _numbers(self, raw: np.ndarray) -> TextReward:
        return TextReward(float(raw[0]), float(self._normalise(raw)[0]), float(self._pay(raw)[0]))
