"""Trainings by two processes, as one process with as many devices does them, and continued by one: real ones, with the real flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.core.metrics import read_metrics
from tests.force.outcomes import rows_of
from tests.lm import talkers
from tests.processes import REPOSITORY, ended, launch_hosts

pytestmark = [pytest.mark.extra, pytest.mark.timeout(900)]
TEXT_AGENT = [
    "train_text.py:wordle_ilql", "--config.task=tests.toy_text:Task", "--config.policy=half", "--config.network.width=16",
    "--config.network.layers=1", "--config.network.heads=2", "--config.network.max_length=16", "--config.batch_size=4",
    "--config.accumulate=2", "--config.max_steps=6", "--config.evaluate_every=3", "--config.chunk_steps=2", "--config.evaluation_batches=1",
    "--config.held_out.share=0.25", "--config.games.episodes=2",
    "--config.log_every_seconds=900",  # rows at evaluations alone
]  # fmt: skip


def train(folder: Path, hosts: int, devices: int, config: str, *flags: str) -> None:
    """Trains by so many processes of so many devices."""
    environment = {"JAX_NUM_CPU_DEVICES": str(devices), "PYTHONPATH": str(REPOSITORY)}
    log = folder.with_name(f"{folder.name}_{hosts}_log")
    programs = launch_hosts(hosts, folder, config, *flags, log=log, **environment)
    with ended(programs):
        codes = [program.wait() for program in programs]
    assert codes == [0] * hosts, [program.text()[-2000:] for program in programs]


def test_two_hosts_learn_what_one_with_as_many_devices_learns(tmp_path: Path) -> None:
    for hosts, name in ((1, "alone"), (2, "together")):
        train(tmp_path / name, hosts, 2 // hosts, *TEXT_AGENT)
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
    model = talkers.write(tmp_path / "model")
    folder = tmp_path / "run"
    flags = [
        "train_language_agent.py:smoke", f"--config.network.model={model}", "--config.network.prompt_tokens=160",
        "--config.compile_cache=", "--config.probes.prompts=",
    ]  # fmt: skip
    both = ["--config.devices.learner=all", "--config.sharding.fsdp=2", "--config.actors.envs_per_worker=2"]
    train(folder, 2, 2, *flags, *both, "--config.devices.cpu_count=2", "--config.train_for_env_steps=128")
    rows = list(read_metrics(folder))
    assert rows[-1]["step"] >= 128
    assert rows[-1]["lag/max"] == 0
    log = (folder / "log.csv").read_text().splitlines()
    assert len(log) == 1 + rows[-1]["time/updates"]
    train(folder, 1, 1, *flags, "--config.train_for_env_steps=200", "--config.devices.cpu_count=1")
    assert list(read_metrics(folder))[-1]["step"] >= 200
    episodes = rows_of(folder / "episodes.jsonl")
    assert len({(row["env"], row["episode"]) for row in episodes}) == len(episodes)
