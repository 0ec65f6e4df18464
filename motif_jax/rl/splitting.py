"""Whether each learning device holds the whole network, or a part of it (`config.sharding`)."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from ml_collections import ConfigDict

from motif_jax.devices.parallel import DataParallel
from motif_jax.devices.sharding import Sharded
from motif_jax.networks.policy import PolicyNetwork
from motif_jax.rl import agent_networks
from motif_jax.support import config as checks


def mesh_sizes(config: ConfigDict, devices: int) -> dict[str, int] | None:
    """The mesh of a split network over so many learning devices; None where each holds all of it."""
    split = config.get("sharding")
    if split is None or split.fsdp * split.tensor == 1:
        return None
    return {"data": devices // (split.fsdp * split.tensor), "fsdp": split.fsdp, "tensor": split.tensor}


def make_parallel(
    config: ConfigDict, network: PolicyNetwork, devices: Sequence[jax.Device]
) -> DataParallel | Sharded:
    """The learner's parallelism over its devices. Raises UserError: the network cannot be split."""
    sizes = mesh_sizes(config, len(devices))
    return DataParallel(devices) if sizes is None else agent_networks.sharded(network, sizes, devices)


def check(config: ConfigDict, learners: int) -> None:
    """Raises UserError where a resolved config's network or minibatches do not divide over its devices."""
    if "sharding" in config:
        _check_sharding(config, learners)
    if "minibatch_size" in config.algorithm:
        _check_minibatches(config, learners)


def _check_minibatches(config: ConfigDict, learners: int) -> None:
    """Minibatches of steps: every device (a split network: all together) has an equal part, run in equal parts."""
    devices = 1 if mesh_sizes(config, learners) else learners * config.hosts.count
    size, micro = config.algorithm.minibatch_size, config.algorithm.microbatch_size
    allowed = f"a multiple of the {devices} devices that learn"
    checks.require(size % devices == 0, "algorithm.minibatch_size", size, allowed)
    part = size // devices
    divisor = f"a divisor of {part}, a device's part of config.algorithm.minibatch_size={size}"
    length = config.algorithm.get("recurrence", 1)
    good = part % length == 0 or size % length  # of the whole minibatch the algorithm says so
    checks.require(bool(good), "algorithm.recurrence", length, divisor)
    allowed = f"{divisor}, or more"
    checks.require(part % min(micro, part) == 0, "algorithm.microbatch_size", micro, allowed)
    peers = config.algorithm.broadcast_rows
    good = not config.compat.get("glam_value_broadcast") or part % min(peers, part) == 0
    checks.require(good, "algorithm.broadcast_rows", peers, allowed)


def _check_sharding(config: ConfigDict, learners: int) -> None:
    if mesh_sizes(config, learners) is None:
        return
    split = config.sharding.to_dict()
    allowed = f"sizes whose product divides the {learners} devices of config.devices.learner (a host has whole networks)"
    checks.require(learners % (split["fsdp"] * split["tensor"]) == 0, "sharding", split, allowed)
    allowed = "'first' or as config.devices.learner where the network is split over devices"
    good = config.devices.actor in ("first", config.devices.learner)
    checks.require(good, "devices.actor", config.devices.actor, allowed)
