"""Trainings by two processes, which real flags make hosts of one run, against one process with as
many devices.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.metrics import read_metrics
from tests.force.outcomes import rows_of
from tests.lm import talkers
from tests.processes import REPOSITORY, ended, launch_hosts

pytestmark = [pytest.mark.extra, pytest.mark.timeout(900)]

TEXT_AGENT = (
    "train_text.py:wordle_ilql",
    "--config.task=tests.toy_text:Task",
    "--config.policy=half",
    "--config.network.width=16",
    "--config.network.layers=1",
    "--config.network.heads=2",
    "--config.network.max_length=16",
    "--config.batch_size=4",
    "--config.accumulate=2",
    "--config.max_steps=6",
    "--config.evaluate_every=3",
    "--config.chunk_steps=2",
    "--config.evaluation_batches=1",
    "--config.held_out.share=0.25",
    "--config.games.episodes=2",
    # Rows stand at evaluations alone, none where the clock would have one.
    "--config.log_every_seconds=900",
)
LANGUAGE_AGENT = (
    "train_language_agent.py:smoke",
    "--config.network.prompt_tokens=160",
    "--config.probes.prompts=",
)
# Half of the environments, and a model over two devices, for each of two hosts.
SPLIT = (
    "--config.devices.learner=all",
    "--config.sharding.fsdp=2",
    "--config.actors.envs_per_worker=2",
    "--config.train_for_env_steps=128",
)
ALONE = ("--config.train_for_env_steps=200",)


def train(folder: Path, hosts: int, devices: int, config: str, *flags: str) -> None:
    """Trains by so many processes of so many devices each, until all of them end without an
    error.
    """
    environment = {"JAX_NUM_CPU_DEVICES": str(devices), "PYTHONPATH": str(REPOSITORY)}
    log = folder.with_name(f"{folder.name}_{hosts}_log")
    programs = launch_hosts(hosts, folder, config, *flags, log=log, **environment)
    with ended(programs):
        codes = [program.wait() for program in programs]
    assert codes == [0] * hosts, [program.text()[-2000:] for program in programs]


def learned_numbers(row: dict[str, Any]) -> dict[str, float]:
    """The numbers of a row that are computed from what was learned, and not from the clock."""
    return {
        name: number
        for name, number in row.items()
        if name.startswith(("train/", "validation/")) and number is not None
    }


def test_two_hosts_learn_what_one_with_as_many_devices_learns(tmp_path: Path) -> None:
    train(tmp_path / "alone", 1, 2, *TEXT_AGENT)
    train(tmp_path / "together", 2, 1, *TEXT_AGENT)

    alone = list(read_metrics(tmp_path / "alone"))
    joint = list(read_metrics(tmp_path / "together"))
    assert len(alone) >= 3
    assert [row["step"] for row in joint] == [row["step"] for row in alone]
    for row_alone, row_joint in zip(alone, joint, strict=True):
        expected = learned_numbers(row_alone)
        assert {name: row_joint[name] for name in expected} == pytest.approx(expected, rel=1e-5)


@pytest.fixture(scope="module")
def language_agent_flags(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    model = talkers.write(tmp_path_factory.mktemp("model"))
    return (*LANGUAGE_AGENT, f"--config.network.model={model}")


@pytest.fixture(scope="module")
def language_agent(
    tmp_path_factory: pytest.TempPathFactory, language_agent_flags: tuple[str, ...]
) -> Path:
    """The folder of a language agent that two hosts with two devices each have trained."""
    folder = tmp_path_factory.mktemp("run") / "run"
    train(folder, 2, 2, *language_agent_flags, *SPLIT)
    return folder


def test_two_hosts_learn_by_the_policy_that_has_played(language_agent: Path) -> None:
    last = list(read_metrics(language_agent))[-1]

    assert last["step"] >= 128
    assert last["lag/max"] == 0


def test_two_hosts_write_one_log_row_an_update(language_agent: Path) -> None:
    last = list(read_metrics(language_agent))[-1]

    header, *lines = (language_agent / "log.csv").read_text().splitlines()

    assert header
    assert len(lines) == last["time/updates"]


def test_one_host_continues_the_training_of_two(
    tmp_path: Path, language_agent: Path, language_agent_flags: tuple[str, ...]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(language_agent, folder)

    train(folder, 1, 1, *language_agent_flags, *ALONE)

    last = list(read_metrics(folder))[-1]
    assert last["step"] >= 200
    # No environment has played an episode twice.
    episodes = [(row["env"], row["episode"]) for row in rows_of(folder / "episodes.jsonl")]
    assert len(set(episodes)) == len(episodes)
