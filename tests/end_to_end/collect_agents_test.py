"""Collecting with agents' checkpoints: who plays, kills, and what is refused."""

from __future__ import annotations

import json
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from motif_jax.algorithms.appo import make_state
from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.envs import registry
from motif_jax.envs.nethack.random_players import HABITS
from motif_jax.networks.agent import make_agent_network
from motif_jax.rl import agent_checkpoints
from motif_jax.rollouts import agents
from motif_jax.stages import collect as collect_stage
from motif_jax.support import run_folder
from motif_jax.support.errors import UserError
from tests.reward_fixtures import environment, load_config

REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """An agent run with two checkpoints of random weights."""
    folder = tmp_path_factory.mktemp("agent")
    config = runpy.run_path(str(REPOSITORY / "configs" / "train_agent.py"))["get_config"]("smoke")
    run_folder.prepare(folder, config)
    network = make_agent_network(config.network, registry.spec("NetHackScore-v1"))
    shapes = jax.eval_shape(lambda: make_state(network, optax.adam(1e-3), jax.random.PRNGKey(0)))
    with agent_checkpoints.open_checkpoints(folder, keep=5) as checkpoints:
        for step in (100, 200):
            rng = np.random.default_rng(step)
            state = jax.tree.map(lambda a: (0.1 * rng.standard_normal(a.shape)).astype(a.dtype), shapes)  # noqa: B023
            items = agent_checkpoints.items_of_learner(state)
            agent_checkpoints.save(checkpoints, step, items, {}, {}, asynchronous=False)
    return folder


def command(agent, workdir, *flags):
    launch = [sys.executable, "-m", "motif_jax.launch", "--config=configs/collect.py:smoke"]
    play = [
        "--config.num_pairs=100",
        "--config.environment.max_episode_steps=100",
        "--config.start_share=0.2",
        "--config.lanes=4",
        f"--config.agents={agent}@all",
    ]
    weights = {**dict.fromkeys(HABITS, 0), "agents": 2, "uniform": 1}
    mixture = [f"--config.mixture.{name}={weight}" for name, weight in weights.items()]
    return [*launch, f"--workdir={workdir}", *play, *mixture, *flags]


def collect(agent, workdir, *flags):
    done = subprocess.run(
        command(agent, workdir, *flags),
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def rows(folder):
    return [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


@pytest.mark.extra
def test_agents_take_part_and_a_kill_changes_nothing(agent, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    collect(agent, whole, "--config.workers=2")
    players = {row["player"] for row in rows(whole)}
    assert players == {f"{agent}@100", f"{agent}@200", "uniform"}

    tapes = killed / ".staging" / "tapes"
    for _ in range(5):
        process = subprocess.Popen(
            command(agent, killed), cwd=REPOSITORY, env=environment(), stderr=subprocess.DEVNULL
        )
        while process.poll() is None and len(list(tapes.glob("*.npy"))) < 2:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        if process.wait() != 0:
            break
        shutil.rmtree(killed)  # this process was held up, and it was over before it could be killed
    assert process.returncode == -signal.SIGKILL
    collect(agent, killed)
    assert PairsDataset.open(killed).meta["digests"] == PairsDataset.open(whole).meta["digests"]
    assert rows(killed) == rows(whole)
    player = np.asarray(PairsDataset.open(whole).info["player"]).reshape(-1)
    names = PairsDataset.open(whole).meta["players"]
    assert any(names[number].endswith("@100") for number in player)


@pytest.mark.extra
def test_an_agent_that_was_trained_anew_does_not_go_on_collecting(agent, tmp_path):
    config = load_config("collect", "smoke")
    config.mixture.agents, config.agents = 1.0, f"{agent}@100"
    settled = tmp_path / "agents.json"
    found = collect_stage._agents(config, settled)
    entries = [{**vars(one), "digest": one.digest()} for one in found.values()]
    settled.write_text(json.dumps(entries))
    assert collect_stage._agents(config, settled) == found
    settled.write_text(
        json.dumps([{**entries[0], "digest": agents.CollectingAgent(str(agent), 200).digest()}])
    )
    with pytest.raises(UserError, match=r"config\.agents=.*@100: is not the one that the run started with"):
        collect_stage._agents(config, settled)
    settled.write_text(json.dumps([vars(one) for one in found.values()]))  # as collections were begun before
    assert collect_stage._agents(config, settled) == found


@pytest.mark.extra
def test_which_checkpoints(agent, tmp_path):
    def steps(named):
        return [(found.folder, found.step) for found in agents.resolve(named)]

    folder = str(agent)
    assert steps(folder) == steps(f"{folder}@latest") == [(folder, 200)]
    assert steps(f"{folder}@all") == [(folder, 100), (folder, 200)]
    assert steps(f"{folder}@100, {folder}") == [(folder, 100), (folder, 200)]
    other = tmp_path / "me@home" / "run@x"
    other.parent.mkdir()
    other.symlink_to(agent)
    assert steps(str(other)) == [(str(other), 200)]
    assert steps(f"{other}@100,{other}@all") == [(str(other), step) for step in (100, 100, 200)]
    for named, words in (
        ("", "must name run folders"),
        (f"{other.parent}/run", "not a run folder"),
        (f"{folder}@7", "the steps of .* are 100, 200"),
        (f"{folder}@newest", "must end with @latest, @best, @all or @STEP"),
        (str(tmp_path), "not a run folder"),
    ):
        with pytest.raises(UserError, match=words):
            agents.resolve(named)
