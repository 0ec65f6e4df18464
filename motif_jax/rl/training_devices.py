"""The devices of a training: those that learn, those that act, and the one that pays texts."""

from __future__ import annotations

import jax

from motif_jax.core import config as checks
from motif_jax.core.devices.parallel import cpu_device
from motif_jax.rl.config import Devices


def all_learner_devices(devices: Devices) -> list[jax.Device]:
    """The devices of `devices.learner` on all hosts, with the same numbers on each."""
    local = jax.local_devices()
    numbers = [local.index(device) for device in learner_devices(devices)]
    learners = []
    for host in range(jax.process_count()):
        devices_of_host = jax.local_devices(process_index=host)
        learners += [devices_of_host[number] for number in numbers]
    return learners


def learner_devices(devices: Devices) -> list[jax.Device]:
    """This host's devices of `devices.learner`."""
    return _devices(devices.learner, "devices.learner")


def actor_devices(devices: Devices) -> list[jax.Device]:
    """This host's devices of `devices.actor`."""
    if devices.actor == "first":
        return learner_devices(devices)[:1]
    return _devices(devices.actor, "devices.actor")


def lookup_device(devices: Devices) -> jax.Device:
    """The device that computes rewards of texts: the CPU, or without one (JAX_PLATFORMS) a device
    that acts and does not learn.
    """
    acting = actor_devices(devices)
    learning = learner_devices(devices)
    # A device runs its programs in order: a lookup there would wait for a whole update.
    if acting[0].platform != "cpu":
        cpu = cpu_device()
        if cpu is not None:
            return cpu
    # Of several devices of the CPU, too.
    return next((device for device in acting if device not in learning), acting[0])


def _devices(value: str, key: str) -> list[jax.Device]:
    devices = jax.local_devices()
    if value == "all":
        return list(devices)
    numbers = [part.strip() for part in str(value).split(",")]
    exist = all(checks.is_natural(part) and int(part) < len(devices) for part in numbers)
    are_distinct = exist and len({int(part) for part in numbers}) == len(numbers)
    allowed = (
        f"'all' or different numbers below {len(devices)}, the devices here, with commas between"
    )
    checks.require(are_distinct, key, value, allowed)
    return [devices[int(part)] for part in numbers]
