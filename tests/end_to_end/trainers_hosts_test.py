"""Trainings by two processes, as one process with as many devices does them, and continued by one: real ones, with the real flags."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from motif_jax.support.metrics import read_metrics
from tests.language import talkers
from tests.processes import REPOSITORY, Program, ended, free_port, launch

pytestmark = [pytest.mark.extra, pytest.mark.timeout(900)]
TEXT_AGENT = [
    "train_text.py:wordle_ilql", "--config.task=tests.toy_text:Task", "--config.policy=half", "--config.network.width=16",
    "--config.network.layers=1", "--config.network.heads=2", "--config.network.max_length=16", "--config.batch_size=4",
    "--config.accumulate=2", "--config.max_steps=6", "--config.evaluate_every=3", "--config.chunk_steps=2", "--config.evaluation_batches=1",
    "--config.held_out.share=0.25", "--config.games.episodes=2",
]  # fmt: skip


def start(folder: Path, hosts: int, devices: int, config: str, *flags: str) -> list[Program]:
    """Starts a training by so many processes of so many devices."""
    port = free_port()
    environment = {
        "JAX_NUM_CPU_DEVICES": str(devices),
        "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}",
    }
    own = [
        [f"--config.hosts.coordinator=localhost:{port}", f"--config.hosts.count={hosts}", f"--config.hosts.index={index}"]
        for index in range(hosts)
    ]  # fmt: skip
    log = f"{folder}_{hosts}_log"
    return [
        launch(folder, config, *flags, *more, log=Path(f"{log}_{index}"), **environment)
        for index, more in enumerate(own)
    ]


def codes(programs: list[Program]) -> list[int]:
    with ended(programs):
        return [program.wait() for program in programs]


def test_two_hosts_learn_what_one_with_as_many_devices_learns(tmp_path: Path) -> None:
    for hosts, name in ((1, "alone"), (2, "together")):
        programs = start(tmp_path / name, hosts, 2 // hosts, *TEXT_AGENT)
        assert codes(programs) == [0] * hosts, [program.text()[-3000:] for program in programs]
    alone, together = (list(read_metrics(tmp_path / name)) for name in ("alone", "together"))
    assert [row["step"] for row in together] == [row["step"] for row in alone]
    assert len(alone) >= 3
    for one, other in zip(alone, together, strict=True):
        learned = {
            k: v for k, v in one.items() if k.partition("/")[0] in ("train", "validation") and v is not None
        }
        assert {k: other[k] for k in learned} == pytest.approx(learned, rel=1e-5)


def test_two_hosts_train_one_model_and_one_goes_on(tmp_path: Path) -> None:
    """Half of the environments and a model over two devices each; every update learns from all, by the policy that has played."""
    model, folder = talkers.write(tmp_path / "model"), tmp_path / "run"
    flags = [
        f"--config.network.model={model}",
        "--config.network.prompt_tokens=160",
        "--config.compile_cache=",
        "--config.probes.prompts=",
    ]
    port = free_port()
    hosts = [
        [
            f"--config.hosts.coordinator=localhost:{port}",
            "--config.hosts.count=2",
            f"--config.hosts.index={index}",
            "--config.devices.cpu_count=2",
            "--config.devices.learner=all",
            "--config.sharding.fsdp=2",
            "--config.actors.envs_per_worker=2",
            "--config.train_for_env_steps=128",
        ]
        for index in range(2)
    ]
    programs = [
        launch(folder, "train_language_agent.py:smoke", *flags, *own, log=tmp_path / f"log_{index}")
        for index, own in enumerate(hosts)
    ]
    with ended(programs):
        codes = [program.wait() for program in programs]
    assert codes == [0, 0], [program.text()[-2000:] for program in programs]
    rows = list(read_metrics(folder))
    assert rows[-1]["step"] >= 128
    assert rows[-1]["lag/max"] == 0
    log = (folder / "log.csv").read_text().splitlines()
    assert len(log) == 1 + rows[-1]["time/updates"]
    alone = launch(
        folder,
        "train_language_agent.py:smoke",
        *flags,
        "--config.train_for_env_steps=200",
        "--config.devices.cpu_count=1",
        log=tmp_path / "log_alone",
    )
    with ended([alone]):
        assert alone.wait() == 0, alone.text()[-2000:]
    assert list(read_metrics(folder))[-1]["step"] >= 200
    episodes = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    assert len({(row["env"], row["episode"]) for row in episodes}) == len(episodes)
