"""What a training prints when it starts: an overview, remarks on its config, and what a language
agent's run is doing before its first update.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from motif_jax.core import entry_points
from motif_jax.core.progress import PLAIN_INTERVAL_SECONDS
from motif_jax.rl import agent_networks, choices, settings
from motif_jax.rl.config import AgentConfig

# Above so many batches at once the user is told of the lag: 1,200 environments x 32 steps, nine
# batches of 4,096, had one of 5 updates.
_MAX_BATCHES_AT_ONCE = 2


class StartMessages:
    """Prints what a language agent's run is doing before its first update, which may take minutes;
    other runs print nothing.
    """

    def __init__(self, config: AgentConfig, print_line: Callable[[str], None]) -> None:
        self.config = config
        self._print_line = print_line
        self._announces_compilation = agent_networks.class_of(config).is_slow
        self._printed_at = 0.0

    def _print(self, line: str) -> None:
        if self._announces_compilation:
            self._printed_at = time.monotonic()
            self._print_line(line)

    def read_model(self) -> None:
        if self._announces_compilation:
            self._print(f"reading the language model {self.config.network.model}")
            remark = agent_networks.class_of(self.config).remark(self.config)
            if remark:
                self._print(remark)

    def compile(self) -> None:
        self._print("compiling the policy's programs, while the actors start")

    def play(self, played: int) -> None:
        """Called whenever steps were played; prints now and then."""
        if played == 0 or time.monotonic() - self._printed_at >= PLAIN_INTERVAL_SECONDS:
            self._print(
                f"playing: {played:,} of {self.config.batch_size:,} steps before the first update"
            )

    def learn(self) -> None:
        """Called before every update; prints before the first."""
        self._print("the first update; its program is compiled before")
        self._announces_compilation = False


def overview(
    config: AgentConfig, num_parameters: int, nodes: Sequence[str], remark: str = ""
) -> str:
    """The line that sums a run up at its start.

    Args:
      nodes: the hosts' names.
      remark: `EnvironmentSpec.remark`.
    """
    # Those of other hosts are alike.
    learning = settings.learner_devices(config.devices)
    acting = settings.actor_devices(config.devices)
    workers = config.actors.workers
    plural = "" if workers == 1 else "s"
    environments = f"{config.actors.envs_per_worker} environments of {config.environment.name}"
    actors = f"{workers} actor{plural} x {environments}"
    if remark:
        actors += f" ({remark})"
    if len(nodes) > 1:
        counts = Counter(nodes).items()
        machines = ", ".join(node if count == 1 else f"{count} x {node}" for node, count in counts)
        actors = f"{len(nodes)} hosts ({machines}), each with {actors}"

    size = f"{num_parameters / 1e6:.1f} million" if num_parameters >= 1e6 else f"{num_parameters:,}"
    act = "act" if len(acting) > 1 else "acts"
    if list(learning) == list(acting):
        devices = f"{_devices(learning)}, which also {act}"
    else:
        devices = f"{_devices(learning)}; {_devices(acting)} {act}"
    return "; ".join([actors, f"{size} parameters learn on {devices}", _reward(config)])


def _devices(devices: Sequence[jax.Device]) -> str:
    """'gpu:0,1 (2 x NVIDIA H200)', or 'cpu:0 (no GPU)'."""
    platform = devices[0].platform
    numbers = ",".join(str(device.id) for device in devices)
    if platform == "cpu":
        return f"{platform}:{numbers} (no GPU)"
    kind = devices[0].device_kind
    if len(devices) > 1:
        kind = f"{len(devices)} x {kind}"
    return f"{platform}:{numbers} ({kind})"


def _reward(config: AgentConfig) -> str:
    reward = config.reward
    source = reward.dir or f"kind {reward.kind}"
    if reward.intrinsic_coefficient != 0:
        return f"intrinsic reward of {source}"
    paid = "the task's reward alone"
    if reward.extrinsic_coefficient == 0:
        paid = "no reward: both coefficients are 0"
    # Kind motif has no reward without a run in `dir`.
    if reward.kind == "none" or (reward.kind == choices.MOTIF and not reward.dir):
        return paid
    logged = f"the intrinsic reward of {source} is only logged"
    if reward.kind in choices.LEARNED_REWARDS:
        logged += ", and its annotator is asked all the same: config.reward.kind=none asks nothing"
    return f"{paid} ({logged})"


def remark_on_lag(config: AgentConfig) -> str | None:
    """A line for a resolved config whose environments fill several batches at once, which are
    learned from one by one.
    """
    environments = config.actors.workers * config.actors.envs_per_worker * (config.hosts.count or 1)
    batches = environments * config.rollout / config.batch_size
    if batches <= _MAX_BATCHES_AT_ONCE:
        return None
    return (
        f"{environments:,} environments x config.rollout={config.rollout} fill {batches:.1f} batches at once, so that updates "
        f"learn from steps of earlier policies ('lag' in the progress line): a larger config.batch_size={config.batch_size} or a "
        "smaller config.actors.envs_per_worker lowers it"
    )


def remark_on_algorithm(section: ConfigDict) -> str | None:
    """A line for another algorithm of this package in a config file that lists APPO's keys, whose
    defaults it then takes.
    """
    name = section.get("name", choices.APPO)
    appo = _defaults(choices.APPO)
    lists_appo = appo.keys() <= set(section.keys())
    if name == choices.APPO or entry_points.is_entry_point(name) or not lists_appo:
        return None
    taken = []
    for key, default in _defaults(name).items():
        is_shared = key in appo and key != "name"
        if is_shared and section[key] == appo[key] and default != appo[key]:
            taken.append(f"{key}={section[key]} ({name}'s own: {default})")
    if not taken:
        return None
    return f"config.algorithm.name={name} takes these values, which the config file has for appo, unless they are set: {', '.join(taken)}"


def _defaults(algorithm: str) -> dict[str, Any]:
    """The keys of an algorithm's section and their defaults."""
    return dataclasses.asdict(choices.ALGORITHMS.section(algorithm)())
