"""Policies that episodes can be played with: the random one, and what a network's must offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from motif_jax.playing.episode_worker import Uniforms

RANDOM = "random"
AGENT = "agent"


class BatchPolicy(Protocol):
    """A policy whose network runs on the device, for a batch of environments at a time."""

    name: str

    def initial_state(self, batch_size: int) -> Any:
        """Returns the recurrent state before an episode, for `batch_size` environments."""
        ...

    def act(
        self, observation: Mapping[str, np.ndarray], first: np.ndarray, state: Any
    ) -> tuple[np.ndarray, np.ndarray, Any]:
        """Reads one observation per environment.

        Args:
          observation: the fields of the environment's spec, [B, ...] each.
          first: bool [B], True where an episode begins: the state is zeroed before the observation is read.
          state: what the previous call returned.

        Returns:
          Logits float32 [B, A], values float32 [B], and the new state.
        """
        ...


@dataclass(frozen=True)
class RandomPolicy:
    """Every action is equally likely; the draw depends on the episode's seed and the step alone."""

    name: str = RANDOM

    def actions(self, seed: int, num_actions: int) -> Iterator[int]:
        """Yields actions without end."""
        uniforms, step = Uniforms(seed), 0
        while True:
            yield int(uniforms.at(step) * num_actions)
            step += 1


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities of `logits` [..., A] in float64."""
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def choose_actions(
    logits: np.ndarray, uniforms: np.ndarray, greedy: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Draws one action per row by inverting the cumulative distribution.

    Args:
      logits: float [B, A].
      uniforms: float [B] in [0, 1).
      greedy: take the most likely action instead.

    Returns:
      Actions int32 [B] and their log-probabilities float32 [B].
    """
    log_probs = log_softmax(logits)
    if greedy:
        actions = log_probs.argmax(-1)
    else:
        cumulative = np.exp(log_probs).cumsum(-1)
        actions = (cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(-1)
        actions = np.minimum(actions, logits.shape[-1] - 1)
    chosen = np.take_along_axis(log_probs, actions[:, None], -1)[:, 0]
    return actions.astype(np.int32), chosen.astype(np.float32)
