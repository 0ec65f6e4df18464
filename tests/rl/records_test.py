"""What a training writes after each update: the published log, whose rows hold for all hosts of a run."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from motif_jax.rl import records, training
from motif_jax.rl.records import Records
from motif_jax.support import resources
from motif_jax.support.interruption import Interruption
from tests.published.glam_log_test import METRICS

# Of two hosts: the steps that each learns from in an update, by its number, and the returns of the episodes that end up to it.
STEPS = ((30, 32, 28), (32, 20, 32))
RETURNS = (((0.5,), (), (0.75, 0.25)), ((), (0.125, 1.0), (0.625,)))


def reported(host: int, update: int) -> list[dict[str, Any]]:
    return [
        {"env": 10 * host + number, "episode": update, "return": value, "length": 8.0}
        for number, value in enumerate(RETURNS[host][update])
    ]


class Run:
    """As much of a system, of the hosts and of their agreement as a loop and its records look at; its learner counts updates.

    Attributes:
      count: hosts; this one is the first, the second is made up.
    """

    def __init__(self, count: int) -> None:
        self.count, self.is_first, self.stop = count, True, Interruption()
        self.version, self.failures, self._told, self._voted = 0, [], 0, False
        actors = SimpleNamespace(restarts=0, dropped_slots=0, rebuilt=0, episodes=self._episodes)
        self.learner, self.sources = self, [SimpleNamespace(actors=actors)]
        self.network = SimpleNamespace(spec=SimpleNamespace(episode_fields=()))
        self.reward, self.has_lookup, self.parallel = None, False, None

    def _episodes(self) -> list[dict[str, Any]]:
        return reported(0, self.version - 1)

    def next_episode(self) -> list[int]:
        return [0]

    def draws(self) -> int:
        return 0

    def gather(self, value: Any) -> list[Any]:
        new = [report for update in range(self._told, self.version) for report in reported(1, update)]
        self._told = self.version
        rows = [{**report, "step": 0, "intrinsic_return": None} for report in new]
        return [value, {**value, "episodes": rows}][: self.count]

    def get(self) -> Any:
        self.stop.requested = self.version == 2
        return SimpleNamespace(num_steps=STEPS[0][self.version], reward_version=0, intrinsic_returns=())

    def step(self, batch: Any) -> None:
        self.version += 1

    def settle(self) -> None:
        pass

    def metrics(self) -> dict[str, float]:
        return METRICS if self._voted else {}

    def say(self, numbers: Sequence[int]) -> None:
        self._voted = True

    def result(self) -> list[int] | None:
        if not self._voted:
            return None
        self._voted = False
        steps = sum(STEPS[host][self.version - 1] for host in range(self.count))
        return [steps, int(self.stop.requested), 0, 0]


@pytest.mark.parametrize(
    ("count", "frames", "episodes", "means"),
    [
        (1, [30, 62, 90], [1, 1, 3], [0.25, 0.25, 0.5]),
        (2, [62, 114, 174], [1, 3, 6], [0.125, 0.40625, 0.65625]),
    ],
)
def test_a_row_of_the_published_log_is_of_all_hosts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    frames: list[int],
    episodes: list[int],
    means: Any,
) -> None:
    """It has the steps that they agreed on, and the episodes that ended on any of them up to its update."""
    config = resources.config("train_language_agent", "smoke")
    config.actors.workers, config.actors.envs_per_worker, config.hosts.count = 1, 2, count
    config.probes, config.train_for_env_steps, config.save_every_steps = None, 10**6, 10**9
    run = Run(count)
    for module in (records, training):
        monkeypatch.setattr(module, "Hosts", lambda: run)
    monkeypatch.setattr(training, "Agreement", lambda parallel: run)
    monkeypatch.setattr(records.agent_networks, "read_anew", lambda config: {})
    monkeypatch.setattr(Records, "end", lambda self, stream: None)
    parts: Any = run
    agent = training.AgentTraining(config, tmp_path)
    with Records(config, tmp_path, parts, parts, agent.clock, None, {}) as made:
        profiler: Any = SimpleNamespace(step=lambda update: None)
        agent._learn(run.stop, parts, parts, made, profiler)
    with (tmp_path / "log.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    assert [row["update"] for row in rows] == [0, 1, 2]
    assert [row["frames"] for row in rows] == frames
    assert [row["episodes"] for row in rows] == episodes
    assert [row["return_mean"] for row in rows] == means
