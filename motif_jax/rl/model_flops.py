"""The share of the devices' peak rate that a training uses (`mfu`): model FLOPs of its rows over
FLOPs at the peak rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from motif_jax.core.devices.flops import peak_flops, product_flops
from motif_jax.core.devices.meters import Reading
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import agent_networks, settings
from motif_jax.rl.batcher import Batch
from motif_jax.rl.config import AgentConfig

Shapes = Mapping[str, tuple[int, ...]]


def row_flops(
    network: PolicyNetwork, params: Any, shapes: Shapes | None = None
) -> tuple[float, float]:
    """Floating-point operations of a row in products of a network: (forward pass, forward pass and
    gradient).

    An update costs three forward passes, less the gradient of the first layers' inputs, which is
    not needed.

    Args:
      params: all parameters of `apply`, or their shapes.
      shapes: of a row's fields, where they differ from the environment's, as those of cropped
          prompts do.
    """
    fields = network.spec.observation
    shapes = {name: fields[name].shape for name in network.fields} if shapes is None else shapes
    observation = {
        name: jax.ShapeDtypeStruct((1, 1, *shapes[name]), fields[name].dtype)
        for name in network.fields
    }
    state = jax.eval_shape(lambda: network.initial_state(1))
    first = jax.ShapeDtypeStruct((1, 1), bool)
    # The gradient flows to the parameters and, through the state, to earlier rows.
    arguments = (params, observation, state, first)
    differentiated = jax.tree.leaves(jax.tree.broadcast((True, False, True, False), arguments))
    forward, first_layers = product_flops(
        jax.make_jaxpr(network.apply)(*arguments).jaxpr, differentiated
    )
    return forward, 3.0 * forward - first_layers


class DeviceUse:
    """Metrics `mfu` of a training on devices whose peak is known; on others nothing is counted or
    traced.

    Rows count as often as they are learned from; what a gradient computes again does not count.

    Args:
      params: all parameters of the network, frozen ones too.
    """

    def __init__(
        self,
        config: AgentConfig,
        network: PolicyNetwork,
        params: Any,
        learning: Sequence[jax.Device],
        acting: Sequence[jax.Device],
    ) -> None:
        self._peak: float | None = None  # FLOPs a second of a device; None: nothing is counted
        self._learned_flops = 0.0  # since the last `metrics`
        self._forward_flops = 0.0  # of a row of the newest batch
        self._flops_by_shapes: dict[tuple[tuple[int, ...], ...], tuple[float, float]] = {}
        network_kind = agent_networks.class_of(config)
        dtype = network_kind.product_dtype(config)
        if dtype is None:
            return
        self._peak = peak_flops(learning[0], dtype, config.matmul_precision)
        if self._peak is None:
            return
        counted = network_kind.counted(config, network, params)
        if counted is None:
            self._peak = None
            return
        self._network, self._params = counted
        self._learning_count = len(learning)
        self._device_count = len({*learning, *acting})  # one that learns and acts is one device
        epochs = settings.algorithm_class(config).epochs(config)
        # With row T, which an update runs for its value.
        self._rows = settings.columns(config) * (config.rollout + 1) * epochs

    def add(self, batch: Batch) -> None:
        """Counts a batch that is learned from."""
        if self._peak is None:
            return
        fields = self._network.spec.observation
        observation = batch.trajectories.observation
        shapes = {}
        for name in self._network.fields:
            leaf = observation[name]
            # Axes of devices, time and rollouts come first.
            shapes[name] = leaf.shape[leaf.ndim - len(fields[name].shape) :]
        key = tuple(shapes.values())
        if key not in self._flops_by_shapes:
            self._flops_by_shapes[key] = row_flops(self._network, self._params, shapes)
        self._forward_flops, update_flops = self._flops_by_shapes[key]
        self._learned_flops += update_flops * self._rows

    def metrics(self, reading: Reading) -> dict[str, float]:
        """`learner/mfu` while an update runs, `throughput/mfu` of all devices at all times; {}
        without a known peak.

        They are of the batches since the last call. Rows that act count as much as those of the
        newest batch.
        """
        if self._peak is None:
            return {}
        learned = self._learned_flops
        self._learned_flops = 0.0
        acted = self._forward_flops * reading.sums.get("inference/rows", 0.0)
        update_seconds = reading.sums.get("learner/update", 0.0)
        learner_mfu = 0.0
        if update_seconds > 0:
            learner_mfu = learned / update_seconds / (self._peak * self._learning_count)
        return {
            "learner/mfu": learner_mfu,
            "throughput/mfu": (learned + acted)
            / reading.seconds
            / (self._peak * self._device_count),
        }
