"""Steps a second on paper: from cores, engine speed, network FLOPs, device rate and links; and against a measured run.

    python -m motif_jax.launch --config=configs/benchmark.py:scale

Measures the parts alone (actors, inference, learner, the host's own work) and the whole system, all on this machine.
Value: the whole system's steps a second; yardstick: what `predict` gives from the parts. docs/scale.md has the formulas
and what they say of larger machines. About three minutes on CPU. On a GPU: `configs/benchmark.py:scale_gpu`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from motif_jax.benchmarks import result
from motif_jax.envs.nethack.tasks import PLAIN_TASKS
from motif_jax.support import config as checks

# Of an actor, as `config.actors.groups_per_worker`.
_GROUPS = 2


@dataclasses.dataclass(frozen=True)
class Machine:
    """What the run has to work with; rates are of one core, device or link.

    Attributes:
      hosts: processes, each with its own cores, devices and actors.
      cores: of a process, its own core included.
      devices: of a process; all learn and all act. 0: the cores are the device (CPU).
      engine_rate: steps/s of an actor that has a core to itself, rules, rows and pipes included.
      device_rate: FLOP/s of large matrix products in the network's dtype.
      device_link: bytes/s from a host's memory to one device.
      network_link: bytes/s between a host and the others.
      network_latency: seconds of one hop of a reduction between hosts.
    """

    hosts: int
    cores: int
    devices: int
    engine_rate: float
    device_rate: float
    device_link: float = math.inf
    network_link: float = math.inf
    network_latency: float = 0.0


@dataclasses.dataclass(frozen=True)
class Work:
    """What a step costs.

    Attributes:
      forward_flops: of one row's forward pass.
      inference_share: of `device_rate` that inference reaches at its batch size.
      learner_share: of `device_rate` that the update reaches.
      host_seconds: of a host's main process for one step: inference's rows, hand-over, batch, put.
      step_bytes: of a row that goes to the device twice, for inference and in a batch.
      parameters: numbers that are reduced over all devices with every update.
      batch_size: steps of an update, of all hosts together.
      rollout: steps of a trajectory; the update also reads the row after them.
      envs_per_core: environments that an actor core steps.
      call_seconds: of an inference call apart from its FLOPs (launch, transfers).
    """

    forward_flops: float
    inference_share: float
    learner_share: float
    host_seconds: float
    step_bytes: float = 0.0
    parameters: int = 0
    batch_size: int = 4096
    rollout: int = 32
    envs_per_core: int = 20
    call_seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Steps a second of the whole run.

    Attributes:
      steps_per_second: the smallest of the limits.
      bound: its name.
      limits: what each part would allow if the others were free: name -> steps/s.
    """

    steps_per_second: float
    bound: str
    limits: dict[str, float]


def predict(machine: Machine, work: Work) -> Prediction:
    """Predicts the steps a second of a training.

    With devices of their own the parts work at the same time, and the slowest is the bound. On a CPU the network and the
    actors take turns on the same cores, and their times add up.
    """
    inference = work.forward_flops / (machine.device_rate * work.inference_share)
    learner = (
        3.0
        * work.forward_flops
        * (work.rollout + 1)
        / work.rollout
        / (machine.device_rate * work.learner_share)
    )
    acting = 1.0 / machine.engine_rate
    if machine.devices == 0:
        seconds = inference + learner + (acting + work.host_seconds) / machine.cores
        reduction = _reduction_seconds(machine, work) / work.batch_size
        limits = {
            "actors": machine.hosts * machine.cores / acting,
            "inference": machine.hosts / inference,
            "learner": machine.hosts / learner,
            "host process": machine.hosts / work.host_seconds if work.host_seconds else math.inf,
            "cores (actors, inference and learner in turns)": 1.0 / (seconds / machine.hosts + reduction),
        }
        return _smallest(limits)
    devices = machine.hosts * machine.devices
    reduction = _reduction_seconds(machine, work)
    actor_cores = machine.hosts * (machine.cores - 1)
    limits = {
        "actors": actor_cores * machine.engine_rate,
        "devices": work.batch_size / (work.batch_size * (inference + learner) / devices + reduction),
        "host process": machine.hosts / work.host_seconds if work.host_seconds else math.inf,
        "device links": devices * machine.device_link / max(2.0 * work.step_bytes, 1e-9),
        "environments": _latency_limit(machine, work, actor_cores, learner / devices, reduction),
    }
    return _smallest(limits)


def _smallest(limits: dict[str, float]) -> Prediction:
    bound = min(limits, key=lambda name: limits[name])
    return Prediction(limits[bound], bound, limits)


def _reduction_seconds(machine: Machine, work: Work) -> float:
    """Time of a ring's all-reduce of float32 gradients between hosts (Patarasuk and Yuan 2009), not overlapped."""
    if machine.hosts == 1:
        return 0.0
    share = 2.0 * (machine.hosts - 1) / machine.hosts
    hops = 2.0 * (machine.hosts - 1)
    return share * 4.0 * work.parameters / machine.network_link + hops * machine.network_latency


def _latency_limit(
    machine: Machine, work: Work, actor_cores: int, learner_seconds_per_step: float, reduction: float
) -> float:
    """Steps/s that the number of environments allows.

    An environment takes a step in every round: its group is stepped, its inference call waits for the rest of an update
    that happens to run (half of one, as often as the device learns), and is computed. With r steps/s, an update of U
    seconds for B steps runs a share r U / B of the time: r (c + g + r U U / (2 B)) = environments.
    """
    environments = actor_cores * work.envs_per_core
    update = learner_seconds_per_step * work.batch_size + reduction
    rows = environments / (machine.hosts * machine.devices) / _GROUPS
    call = work.call_seconds + rows * work.forward_flops / (machine.device_rate * work.inference_share)
    fixed = call + work.envs_per_core / _GROUPS / machine.engine_rate
    square = update**2 / (2.0 * work.batch_size)
    return 2.0 * environments / (fixed + math.sqrt(fixed**2 + 4.0 * square * environments))


# What docs/scale.md works out: assumptions from data sheets and small measurements, none of it a measured training.
# An H200: 989e12 FLOP/s in bfloat16, PCIe 5.0 with 16 lanes, one port of 400 Gb/s a host. Small convolutions reach a few
# per cent of that rate.
_GPU = Machine(
    hosts=1,
    cores=16,
    devices=1,
    engine_rate=26_000.0,
    device_rate=989e12,
    device_link=50e9,
    network_link=50e9,
    network_latency=5e-6,
)
_PUBLISHED = Work(
    forward_flops=13_446_912.0,
    inference_share=0.02,
    learner_share=0.05,
    host_seconds=0.75e-6,
    step_bytes=656.0,
    parameters=2_795_640,
    envs_per_core=40,
    call_seconds=3e-4,
)


def _with_processes(count: int, batch: int = 4_096) -> tuple[Machine, Work]:
    machine = dataclasses.replace(_GPU, hosts=count)
    return machine, dataclasses.replace(_PUBLISHED, batch_size=batch * count)


PAPER: dict[str, tuple[Machine, Work]] = {
    "1 GPU, 16 cores": _with_processes(1),
    "8 GPUs, 128 cores, one process": (
        dataclasses.replace(_GPU, cores=128, devices=8),
        dataclasses.replace(_PUBLISHED, batch_size=8 * 4_096),
    ),
    "8 GPUs, 128 cores, a process for each GPU": _with_processes(8),
    "10 such hosts": _with_processes(80),
    "100 such hosts": _with_processes(800),
    "100 such hosts, 128 steps a GPU": _with_processes(800, 128),
}


def options() -> ConfigDict:
    """Settings of the `train` benchmark, whose whole system is predicted, and `steps` of the actors alone."""
    from motif_jax.benchmarks import train

    return ConfigDict({**train.options().to_dict(), "steps": 1_000})


def check(config: ConfigDict) -> None:
    """Raises UserError for a task that the `actors` benchmark cannot play."""
    checks.choice(config, "options.env", PLAIN_TASKS)


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line."""
    from motif_jax.benchmarks import actors, train

    options = config.options
    pool = {
        "env": options.env,
        "workers": options.workers,
        "envs_per_worker": options.envs_per_worker,
        "rollout": options.rollout,
        "steps": options.steps,
    }
    pool = ConfigDict({**actors.options().to_dict(), **pool})
    alone = actors.run(ConfigDict({"name": "actors", "seed": config.seed, "repeats": 1, "options": pool}))
    whole_options = {name: value for name, value in options.to_dict().items() if name != "steps"}
    whole = train.run(ConfigDict({**config.to_dict(), "name": "train", "options": whole_options}))
    machine, work = measured(alone, whole)
    prediction = predict(machine, work)
    return result(
        "scale",
        "steps/s",
        [whole["value"]],
        "predicted from the parts alone",
        [prediction.steps_per_second],
        options.to_dict(),
        bound=prediction.bound,
        limits=prediction.limits,
        parts={**dataclasses.asdict(machine), **dataclasses.asdict(work)},
    )


def measured(actors: dict[str, Any], train: dict[str, Any]) -> tuple[Machine, Work]:
    """The machine and the work as the lines of the `actors` and `train` benchmarks describe them (one process).

    FLOPs stand for seconds here: a step's forward pass is one, and the shares are the measured rates.
    """
    metrics, rollout = train["metrics"], train["settings"]["rollout"]
    # Assembling includes looking up.
    shares = ("inference/host_share", "inference/act_share", "batcher/assemble_share", "batcher/put_share")
    host = sum(metrics[name] for name in shares) / train["value"]
    # The benchmarks train on one device, with as many actors as they are told.
    devices = int(any(kind != "cpu" for kind in train["machine"]["devices"]))
    # On a CPU a step costs its share of the calls that there were; a device computes the rows, its calls are waited for.
    call, per_row = 0.0, 1.0 / train["inference_rows_per_second"]
    if devices:
        call, per_row = call_cost({int(n): s for n, s in train["inference_call_seconds"].items()})
    machine = Machine(
        hosts=1,
        cores=train["settings"]["workers"] + 1 if devices else train["machine"]["cores"],
        devices=devices,
        engine_rate=actors["value"],
        device_rate=1.0,
    )
    work = Work(
        forward_flops=1.0,
        inference_share=1.0 / per_row,
        learner_share=train["learner_steps_per_second"] * 3.0 * (rollout + 1) / rollout,
        host_seconds=host,
        batch_size=train["settings"]["batch_size"],
        rollout=rollout,
        envs_per_core=train["settings"]["envs_per_worker"],
        call_seconds=call,
    )
    return machine, work


def call_cost(seconds: Mapping[int, float]) -> tuple[float, float]:
    """Seconds of an inference call apart from its rows, and of a row: through the smallest and the largest call.

    Args:
      seconds: rows of a call -> its seconds, at least one.
    """
    small, large = min(seconds), max(seconds)
    if small == large:
        return 0.0, seconds[large] / large
    # Where rows cost nothing within the noise, the largest call's share is an upper bound.
    per_row = (seconds[large] - seconds[small]) / (large - small)
    per_row = per_row if per_row > 0 else seconds[large] / large
    return max(0.0, seconds[small] - small * per_row), per_row
