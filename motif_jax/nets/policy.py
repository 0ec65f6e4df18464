"""The interface of policy networks for inference, publishing and the learner."""

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

        If there are any, `init` returns a dict too, and `apply` takes one dict with the entries of
        both.
        """

    def cropped(self, observation: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Removes padding that all rows share from fields [..., *shape] of a batch on the host."""

    def prepare(self, params: Any) -> Any:
        """Returns a replacement for the parameters in `apply`, for many calls with few rows; a pure
        function.
        """

    def initial_state(self, batch_size: int) -> Any:
        """Returns the recurrent state before an episode, a tree of arrays [batch_size, ...]."""

    def apply(
        self, params: Any, observation: Mapping[str, jax.Array], state: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, Any]:
        """Runs over T rows of B environments.

        Args:
          params: from `init` with those of `frozen`, or from `prepare`.
          observation: the fields in `fields`, [T, B, ...] each.
          state: before row 0; reset before row t if first[t].
          first: bool [T, B].

        Returns:
          logits float32 [T, B, A], `envs.spec.MASKED` if `spec.mask_field` is 0, or of real numbers
          the outputs [T, B, 2 n] that `squashed_gaussian` reads; values float32 [T, B]; the new
          state.
        """


def with_input_statistics(
    network: PolicyNetwork,
    params: Any,
    observation: Mapping[str, jax.Array],
    axis_name: str | None = None,
) -> Any:
    """Updates the network's statistics of its inputs in the parameters, if it has any.

    A network with statistics, which are parameters without a gradient, has a pure function
    `with_input_statistics(params, observation) -> params`.

    Args:
      observation: the update's fields [T, B, ...] on one device.
      axis_name: mapped axis over which rows are split; all devices get the statistics of all rows.
    """
    track = getattr(network, "with_input_statistics", None)
    if track is None:
        return params
    read = {name: observation[name] for name in network.fields}
    if axis_name is not None:
        read = jax.lax.all_gather(read, axis_name, axis=1, tiled=True)
    return track(params, read)
