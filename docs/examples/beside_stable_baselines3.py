"""`train_agent.py:gym` and `gym_pixels` beside the PPO of Stable-Baselines3: the same tasks, steps
and seeds.

    .venv-examples/bin/python docs/examples/beside_stable_baselines3.py

motif_jax has the same settings for all tasks, and others for pictures. Stable-Baselines3 has for
each the settings that RL Baselines3 Zoo tuned, for pictures those of Atari, and its defaults where
the Zoo has none. LunarLander's were tuned for a million steps, of which both have 300,000 here;
motif_jax's learning rate falls to 0 in all tasks. Claimed before a run: motif_jax is at least equal
on five of the first seven, and on Crafter. CatchPixels was seen to be learned before.

Crafter is played by its symbols, with what the player sees, has and feels in one vector for
Stable-Baselines3.

With minigrid 3 the Zoo's settings learn neither of its two tasks (issue 500 of
DLR-RM/rl-baselines3-zoo has such a curve), so Stable-Baselines3 plays them without running
normalisation, too. Atari's settings, tuned for ten million steps, do not learn CatchPixels in
100,000, so it is played by Stable-Baselines3's defaults, too. The better of both counts.

A run leaves a line in `--rows`; what has a line is not run again. The table is printed at the end.

Needs Stable-Baselines3 besides motif_jax: `bash launch/setup_examples.sh` makes an environment with
it. LunarLander needs Box2D, too: `.venv-examples/bin/pip install box2d`.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

OURS = "motif_jax"
# gymnasium's names of motif_jax's environments begin with it.
OWN = "motif_jax/"
SB3 = "stable_baselines3"
# The same without the normalisation of the Zoo's settings.
SB3_PLAIN = "stable_baselines3_plain"
# The same without the Zoo's settings.
SB3_DEFAULTS = "stable_baselines3_defaults"
# Parts of a run, for each of which a row has the mean return of the episodes that ended in it.
PARTS = 10
# Two libraries are equal where their means differ by at most this share of a task's span.
EQUAL = 0.05


def falling(initial_value: float) -> Callable[[float], float]:
    """A value that falls linearly to 0; Stable-Baselines3 calls it with the share of the run that
    is left.
    """
    return lambda remaining_share: remaining_share * initial_value


@dataclasses.dataclass(frozen=True)
class Task:
    """A task, and what each library needs for it.

    Attributes:
      span: return of an agent that has learned nothing of use, and of one that has learned the
          task.
      ppo: arguments of Stable-Baselines3's PPO.
      environments: how many Stable-Baselines3 plays at once.
      is_normalised: whether Stable-Baselines3 divides observations and rewards by their running
          spread.
      tries_defaults: whether Stable-Baselines3 plays it by its defaults, too.
      module: registers the environment.
      wrapper: module:Class of a wrapper around the environment, for both.
      variant: motif_jax's settings.
      policy: Stable-Baselines3's network.
      fields: of an environment that shows several arrays, those that both see; they are one vector
          for Stable-Baselines3.
    """

    steps: int
    span: tuple[float, float]
    ppo: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environments: int = 1
    is_normalised: bool = False
    tries_defaults: bool = False
    module: str = ""
    wrapper: str = ""
    variant: str = "gym"
    policy: str = "MlpPolicy"
    fields: tuple[str, ...] = ()


_MINIGRID = {
    "n_steps": 128, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.99, "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 2.5e-4,
    "clip_range": 0.2,
}  # fmt: skip
_CARTPOLE = {
    "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
    "learning_rate": falling(0.001), "clip_range": falling(0.2),
}  # fmt: skip
_LUNAR_LANDER = {
    "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01,
}  # fmt: skip
_PENDULUM = {
    "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2,
    "use_sde": True, "sde_sample_freq": 4,
}  # fmt: skip
_ATARI = {
    "n_steps": 128, "batch_size": 256, "n_epochs": 4, "ent_coef": 0.01, "vf_coef": 0.5, "learning_rate": falling(2.5e-4),
    "clip_range": falling(0.1),
}  # fmt: skip
_FLAT = "minigrid.wrappers:FlatObsWrapper"
_CRAFTER = ("view", "inventory", "facing", "condition")
TASKS = {
    "CartPole-v1": Task(100_000, (22, 500), _CARTPOLE, 8),
    "FrozenLake-v1": Task(100_000, (0.01, 0.74)),
    "Taxi-v3": Task(200_000, (-200, 8)),
    "LunarLander-v3": Task(300_000, (-180, 230), _LUNAR_LANDER, 16),
    "Pendulum-v1": Task(100_000, (-1200, -150), _PENDULUM, 4),
    "MiniGrid-Empty-Random-5x5-v0": Task(
        100_000, (0.3, 0.96), _MINIGRID, 8, True, module="minigrid", wrapper=_FLAT
    ),
    "MiniGrid-DoorKey-5x5-v0": Task(
        100_000, (0.1, 0.96), _MINIGRID, 8, True, module="minigrid", wrapper=_FLAT
    ),
    # Random play has 1.4. Nobody learns the whole game in so few steps: three times as much is
    # taken as learned.
    "motif_jax/Crafter-v1": Task(100_000, (1.4, 4.2), module="motif_jax", fields=_CRAFTER),
    "CatchPixels-v0": Task(
        100_000,
        (-0.56, 1),
        _ATARI,
        8,
        tries_defaults=True,
        module="catch_pixels",
        variant="gym_pixels",
        policy="CnnPolicy",
    ),
}


def curve(ends: Iterable[tuple[int, float]], steps: int) -> list[float | None]:
    """Mean return of the episodes that ended in each of the parts of a run; None where none did."""
    parts: list[list[float]] = [[] for _ in range(PARTS)]
    for step, total in ends:
        # Stable-Baselines3 plays its last rollout to the end, some steps more than were asked for.
        if step <= steps:
            parts[min(PARTS - 1, step * PARTS // steps)].append(total)
    return [round(float(np.mean(part)), 4) if part else None for part in parts]


def made(name: str, task: Task) -> gymnasium.Env:
    """The task's environment for Stable-Baselines3."""
    if task.module:
        importlib.import_module(task.module)
    environment = gymnasium.make(name)
    if task.wrapper:
        module, _, wrapper = task.wrapper.partition(":")
        environment = getattr(importlib.import_module(module), wrapper)(environment)
    if task.fields:
        shown = gymnasium.wrappers.FilterObservation(environment, task.fields)
        environment = gymnasium.wrappers.FlattenObservation(shown)
    return environment


def train_ours(name: str, task: Task, seed: int, workdir: Path) -> list[tuple[int, float]]:
    """Trains by the command line; returns the step at the end of each episode, and its return."""
    # motif_jax plays its own environments without gymnasium.
    is_own = name.startswith(OWN)
    environment = name.removeprefix(OWN) if is_own else f"gym:{name}"
    flags = [
        f"--config=configs/train_agent.py:{task.variant}",
        f"--workdir={workdir}",
        f"--config.environment.name={environment}",
        f"--config.train_for_env_steps={task.steps}",
        f"--config.seed={seed}",
    ]
    if task.module and not is_own:
        flags.append(f"--config.environment.modules={task.module}")
    if task.wrapper:
        flags.append(f"--config.environment.wrappers={task.wrapper}")
    # Beside this script is catch_pixels.
    path = os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "motif_jax.launch", *flags]
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
    )
    lines = (workdir / "episodes.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [(row["step"], row["return"]) for row in rows]


def train_sb3(
    name: str, task: Task, seed: int, workdir: Path, normalises: bool = True
) -> list[tuple[int, float]]:
    """As `train_ours`, by Stable-Baselines3; `normalises`: where the task's settings do."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(1)

    class Ends(BaseCallback):
        """Notes the step and the return of each episode that ends."""

        def __init__(self) -> None:
            super().__init__()
            self.ends: list[tuple[int, float]] = []

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    self.ends.append((self.num_timesteps, info["episode"]["r"]))
            return True

    def make() -> gymnasium.Env:
        return Monitor(made(name, task))

    environments: Any = DummyVecEnv([make] * task.environments)
    if task.is_normalised and normalises:
        environments = VecNormalize(environments, gamma=task.ppo.get("gamma", 0.99))
    ends = Ends()
    PPO(task.policy, environments, seed=seed, device="cpu", **task.ppo).learn(
        task.steps, callback=ends
    )
    return ends.ends


def train_sb3_by_defaults(
    name: str, task: Task, seed: int, workdir: Path
) -> list[tuple[int, float]]:
    """As `train_sb3`, without the task's settings."""
    return train_sb3(name, dataclasses.replace(task, ppo={}, environments=1), seed, workdir)


TRAININGS = {
    OURS: train_ours,
    SB3: train_sb3,
    SB3_PLAIN: functools.partial(train_sb3, normalises=False),
    SB3_DEFAULTS: train_sb3_by_defaults,
}


def read(rows: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []


def run(library: str, name: str, task: Task, seed: int, rows: Path, workdir: Path) -> None:
    """Trains, unless there is a line of it, and adds the line."""
    key = {"library": library, "task": name, "seed": seed, "steps": task.steps}
    if any(key.items() <= row.items() for row in read(rows)):
        return
    started = time.monotonic()
    folder = workdir / f"{library}-{name.replace('/', '-')}-{task.steps}-{seed}"
    ends = TRAININGS[library](name, task, seed, folder)
    seconds = round(time.monotonic() - started)
    line = json.dumps({**key, "curve": curve(ends, task.steps), "seconds": seconds})
    with rows.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    print(line, flush=True)


def last_returns(rows: list[dict[str, Any]], library: str, name: str, steps: int) -> list[float]:
    """Of each seed the return in the last tenth of the steps, or in the last one in which an
    episode ended.
    """
    key = {"library": library, "task": name, "steps": steps}
    curves = [row["curve"] for row in rows if key.items() <= row.items()]
    with_ends = [[value for value in points if value is not None] for points in curves]
    return [values[-1] for values in with_ends if values]


def libraries_of(task: Task) -> list[str]:
    is_played = {SB3_PLAIN: task.is_normalised, SB3_DEFAULTS: task.tries_defaults}
    return [library for library in TRAININGS if is_played.get(library, True)]


def table(rows: list[dict[str, Any]], steps: int | None = None) -> str:
    """The last returns, their means over seeds and extremes; >, =, <: motif_jax against the best
    other. `steps`: for all tasks.
    """
    header = ("task", "steps", "motif_jax", "", "Stable-Baselines3", "its other settings")
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for name, task in TASKS.items():
        last = {
            library: last_returns(rows, library, name, steps or task.steps)
            for library in libraries_of(task)
        }
        if not all(last.values()):
            continue
        best_other = max(
            float(np.mean(values)) for library, values in last.items() if library != OURS
        )
        difference = (np.mean(last[OURS]) - best_other) / (task.span[1] - task.span[0])
        sign = "="
        if abs(difference) > EQUAL:
            sign = ">" if difference > 0 else "<"
        ours, *others = [
            f"{np.mean(values):.4g} [{min(values):.4g}, {max(values):.4g}]"
            for values in last.values()
        ]
        cells = [name, f"{steps or task.steps:,}", ours, sign, *others]
        lines.append(f"| {' | '.join(cells)} |" + " |" * (len(header) - len(cells)))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--rows", type=Path, default=Path("docs/studies/gym.jsonl"))
    parser.add_argument(
        "--workdir", type=Path, default=Path("runs/beside"), help="runs of motif_jax"
    )
    parser.add_argument("--library", choices=list(TRAININGS), help="train with one of them alone")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument(
        "--steps", type=int, help="environment steps of each run; without it the task's"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        for name in arguments.tasks:
            task = TASKS[name]
            if arguments.steps:
                task = dataclasses.replace(task, steps=arguments.steps)
            for library in libraries_of(task):
                if arguments.library in (None, library):
                    run(library, name, task, seed, arguments.rows, arguments.workdir)
    print(table(read(arguments.rows), arguments.steps))


if __name__ == "__main__":
    main()
