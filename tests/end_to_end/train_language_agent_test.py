"""A language model as an agent through the real flags: trained, killed, continued, evaluated, watched."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from motif_jax.stages import probe_language_agent
from tests import reward_fixtures
from tests.language import talkers
from tests.processes import REPOSITORY, wait_until
from tests.refusals import refusal
from tests.reward_fixtures import load_config, run_stage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_quickly")]


def command(config: str, workdir: Path, **flags: object) -> list[str]:
    changes = [f"--config.{key.replace('__', '.')}={value}" for key, value in flags.items()]
    return [
        sys.executable,
        "-m",
        "motif_jax.launch",
        f"--config=configs/{config}",
        f"--workdir={workdir}",
        *changes,
    ]


def environment(tmp_path: Path) -> dict[str, str]:
    return {**reward_fixtures.environment(), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def launch(tmp_path: Path, config: str, workdir: Path, **flags: object) -> subprocess.CompletedProcess[str]:
    line = command(config, workdir, **flags)
    return subprocess.run(
        line, cwd=REPOSITORY, env=environment(tmp_path), capture_output=True, text=True, timeout=400
    )


def test_it_is_trained_through_a_kill_and_plays(tmp_path: Path) -> None:
    model, agent = talkers.write(tmp_path / "model"), tmp_path / "agent"
    flags = {"network__model": model, "network__prompt_tokens": 160, "save_every_seconds": 0.01}
    line = command("train_language_agent.py:smoke", agent, **flags, train_for_env_steps=1_000_000)
    process = subprocess.Popen(
        line, cwd=REPOSITORY, env=environment(tmp_path), stderr=subprocess.PIPE, text=True
    )
    checkpoints = agent / "checkpoints"
    wait_until(
        lambda: process.poll() is not None or len([*checkpoints.glob("[0-9]*")]) > 1, "two checkpoints"
    )
    process.send_signal(signal.SIGKILL)
    said = process.communicate(timeout=500)[1]
    assert process.returncode == -signal.SIGKILL, said[-2000:]
    saved = max(int(path.name) for path in checkpoints.glob("[0-9]*"))
    done = launch(tmp_path, "train_language_agent.py:smoke", agent, **flags, train_for_env_steps=saved + 100)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(row) for row in (agent / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] >= saved + 100
    assert {"loss/policy", "loss/value", "policy/ratio_max", "episode/success"} <= set(rows[-1])
    # Playing and learning take turns: what is learned from was played by the policy that learns.
    assert rows[-1]["lag/max"] == 0
    # Before every update the policy was asked what it would do, and each has a row of the published log.
    updates = int(rows[-1]["time/updates"])
    probes = [json.loads(line) for line in (agent / "probes.jsonl").read_text().splitlines()]
    assert [line["update"] for line in probes] == list(range(updates))
    assert len((agent / "distrib.csv").read_text().splitlines()) == updates
    assert len((agent / "log.csv").read_text().splitlines()) == 1 + updates

    done = launch(tmp_path, "probe_language_agent.py", tmp_path / "probes", policy=agent, checkpoint="latest")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "goal ahead: " in done.stdout
    # What was asked of a checkpoint that is there no more stays, and the new one is asked.
    found = tmp_path / "probes"
    for name in ("probes.jsonl", "clauses.jsonl"):
        (row,) = (found / name).read_text().splitlines()
        (found / name).write_text(json.dumps({**json.loads(row), "step": 1}) + "\n")
    config = load_config("probe_language_agent", "")
    config.update({"policy": str(agent), "checkpoint": "latest"})
    assert probe_language_agent.run(config, found) == 0
    asked = [json.loads(line)["step"] for line in (found / "probes.jsonl").read_text().splitlines()]
    assert asked[0] == 1 < asked[1]

    run_stage("evaluate", tmp_path / "evaluation", "", policy=str(agent), episodes=3)
    evaluation = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())
    assert evaluation["episodes"] == 3

    nothing = f"--config.network.model={tmp_path / 'none'}"
    said = refusal("train_language_agent.py:smoke", tmp_path / "bad", nothing)
    assert said.startswith("config.network.model=")
    assert not (tmp_path / "bad").exists()
