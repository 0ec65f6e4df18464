"""One line of what a training runs where, said when it begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import jax
from ml_collections import ConfigDict


def overview(
    config: ConfigDict,
    num_parameters: int,
    learning: Sequence[jax.Device],
    acting: Sequence[jax.Device],
    nodes: Sequence[str],
) -> str:
    """The line of a `train_agent` config.

    Args:
      config: the stage's.
      num_parameters: of the network.
      learning, acting: devices of one host, the same on all.
      nodes: the name of every host's machine.
    """
    actors = f"{config.actors.workers} actors x {config.actors.envs_per_worker} environments of {config.environment.name}"
    if len(nodes) > 1:
        actors = f"{len(nodes)} hosts ({_machines(nodes)}), each with {actors}"
    return "; ".join(
        [actors, f"{_parameters(num_parameters)} learn on {_places(learning, acting)}", _reward(config)]
    )


def _machines(nodes: Sequence[str]) -> str:
    counts = Counter(nodes)
    return ", ".join(node if count == 1 else f"{count} x {node}" for node, count in counts.items())


def _parameters(number: int) -> str:
    return f"{number / 1e6:.1f} million parameters" if number >= 1e6 else f"{number:,} parameters"


def _places(learning: Sequence[jax.Device], acting: Sequence[jax.Device]) -> str:
    act = "act" if len(acting) > 1 else "acts"
    if list(learning) == list(acting):
        return f"{_devices(learning)}, which also {act}"
    return f"{_devices(learning)}; {_devices(acting)} {act}"


def _devices(devices: Sequence[jax.Device]) -> str:
    """'gpu:0,1 (2 x NVIDIA H200)'; of CPUs it is said that they are no GPU, for those who expect one."""
    platform, kind = devices[0].platform, devices[0].device_kind
    kind = "no GPU" if platform == "cpu" else kind if len(devices) == 1 else f"{len(devices)} x {kind}"
    return f"{platform}:{','.join(str(device.id) for device in devices)} ({kind})"


def _reward(config: ConfigDict) -> str:
    return f"intrinsic reward of {config.reward.dir}" if config.reward.dir else "the task's reward alone"
