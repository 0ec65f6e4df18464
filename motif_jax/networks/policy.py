"""The interface of policy networks: all that inference, publishing and the learner use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np

from motif_jax.envs.spec import EnvironmentSpec


class PolicyNetwork(Protocol):
    """A policy with values as pure functions of its parameters, such as `agent.AgentNetwork`."""

    @property
    def spec(self) -> EnvironmentSpec: ...

    @property
    def fields(self) -> tuple[str, ...]: ...

    def init(self, key: jax.Array) -> Any:
        """Returns new parameters, a tree of arrays."""

    def frozen(self) -> Mapping[str, Any]:
        """Returns parameters that are never trained, numpy arrays; {} for none.

        Otherwise `init` gives a dict, too, and `apply` takes the entries of both in one dict.
        """

    def cropped(self, observation: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Removes padding common to all rows from fields [..., *shape] of a batch on the host."""

    def prepare(self, params: Any) -> Any:
        """Returns what replaces the parameters in `apply` when they act many times; a pure function."""

    def initial_state(self, batch_size: int) -> Any:
        """Returns the recurrent state before an episode, a tree of arrays [batch_size, ...]."""

    def apply(
        self, params: Any, observation: Mapping[str, jax.Array], state: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, Any]:
        """Runs over T rows of B environments.

        Args:
          params: from `init` with those of `frozen`, or from `prepare`.
          observation: the fields in `fields`, [T, B, ...] each.
          state: before row 0; reset before row t where first[t] holds.
          first: bool [T, B].

        Returns:
          logits float32 [T, B, A], `envs.spec.MASKED` where `spec.mask_field` is 0; values float32 [T, B]; the new state.
        """


def tracked(
    network: PolicyNetwork, params: Any, observation: Mapping[str, jax.Array], axis_name: str | None = None
) -> Any:
    """The parameters after an update, with the network's statistics of its inputs updated, if it has any.

    Such a network has a pure function `tracked(params, observation) -> params`; its statistics are parameters without a
    gradient.

    Args:
      observation: the fields [T, B, ...] of the update, of one device.
      axis_name: mapped axis over which rows are split; all devices get the statistics of all rows.
    """
    track = getattr(network, "tracked", None)
    if track is None:
        return params
    read = {name: observation[name] for name in network.fields}
    if axis_name is not None:
        read = jax.lax.all_gather(read, axis_name, axis=1, tiled=True)
    return track(params, read)
