"""What a network must offer to act and to learn online: inference, publishing and the learner see this and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np

from motif_jax.envs.spec import EnvironmentSpec


class PolicyNetwork(Protocol):
    """A policy with values as pure functions of its parameters; `agent.AgentNetwork` is one.

    Attributes:
      spec: what it observes and how many actions there are.
      fields: the observation fields that it reads.
    """

    @property
    def spec(self) -> EnvironmentSpec:
        """See above."""

    @property
    def fields(self) -> tuple[str, ...]:
        """See above."""

    def init(self, key: jax.Array) -> Any:
        """Returns new parameters, a tree of arrays."""

    def frozen(self) -> Mapping[str, Any]:
        """Returns what is read and never learned, numpy arrays; {} for nothing.

        Where there is something, `init` gives a dict too, and `apply` takes the entries of both as one.
        """

    def cropped(self, observation: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Returns fields [..., *shape] of a batch on the host without what is padding in all of its rows."""

    def prepare(self, params: Any) -> Any:
        """Returns what takes the parameters' place in `apply` when they act many times; a pure function."""

    def initial_state(self, batch_size: int) -> Any:
        """Returns the recurrent state before an episode, a tree of arrays [batch_size, ...]."""

    def apply(
        self, params: Any, observation: Mapping[str, jax.Array], state: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, Any]:
        """Runs over T rows of B environments.

        Args:
          params: from `init` with what is `frozen`, or from `prepare`.
          observation: the fields in `fields`, [T, B, ...] each.
          state: before row 0; it is that of a new episode before row t where first[t] holds.
          first: bool [T, B].

        Returns:
          logits float32 [T, B, A], `envs.spec.MASKED` where `spec.mask_field` is 0; values float32 [T, B]; the new state.
        """


def tracked(
    network: PolicyNetwork, params: Any, observation: Mapping[str, jax.Array], axis_name: str | None = None
) -> Any:
    """The parameters behind an update: networks that have seen statistics of what they read keep them among these, without a gradient.

    Such a network has `tracked(params, observation) -> params`, a pure function.

    Args:
      network: the policy's.
      params: what is learned.
      observation: the fields [T, B, ...] that the update learned from, of one device.
      axis_name: mapped axis over which rows are split: all devices see the same, all rows.
    """
    track = getattr(network, "tracked", None)
    if track is None:
        return params
    read = {name: observation[name] for name in network.fields}
    if axis_name is not None:
        read = jax.lax.all_gather(read, axis_name, axis=1, tiled=True)
    return track(params, read)
