"""Collecting with agents' checkpoints: who plays, and what is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs.nethack.random_players import HABITS
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.play import agents
from tests.play import untrained
from tests.reward_fixtures import run_stage


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """An agent run with two checkpoints of random weights."""
    folder = tmp_path_factory.mktemp("agent")
    small = {"network.encoder": "flat", "network.flat_sizes": (16,)}
    untrained.write(folder, "smoke", small, {100: 0.0, 200: 0.0})
    return folder


FEW = {
    "num_pairs": 100, "environment.max_episode_steps": 100, "start_share": 0.2, "lanes": 4, "workers": 1,
    **{f"mixture.{name}": 0.0 for name in HABITS}, "mixture.agents": 2.0, "mixture.uniform": 1.0,
}  # fmt: skip


@pytest.mark.extra
def test_agents_take_part_and_play_on_after_a_kill(agent, tmp_path, monkeypatch):
    folder = run_stage("collect", tmp_path / "pairs", **FEW, agents=f"{agent}@all")
    players = {
        json.loads(line)["player"] for line in (folder / "episodes.jsonl").read_text().splitlines()
    }
    assert players == {f"{agent}@100", f"{agent}@200", "uniform"}
    dataset = PairsDataset.open(folder)
    drawn = np.asarray(dataset.info["player"]).reshape(-1)
    assert any(dataset.meta["players"][number].endswith("@100") for number in drawn)

    left = [3]
    play = agents.play

    def killed(*flags):
        for episode in play(*flags):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            yield episode

    with monkeypatch.context() as patch:
        patch.setattr(agents, "play", killed)
        with pytest.raises(KeyboardInterrupt):
            run_stage("collect", tmp_path / "killed", **FEW, agents=f"{agent}@all")
    assert not (tmp_path / "killed" / "dataset.json").exists()
    run_stage("collect", tmp_path / "killed", **FEW, agents=f"{agent}@all")
    assert PairsDataset.open(tmp_path / "killed").meta["digests"] == dataset.meta["digests"]


@pytest.mark.slow
def test_an_agent_that_was_trained_again_ends_its_collection(agent, tmp_path, monkeypatch):
    retrained = tmp_path / "agent"
    shutil.copytree(agent, retrained)

    def killed(*flags):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(agents, "play", killed)
        with pytest.raises(KeyboardInterrupt):
            run_stage("collect", tmp_path / "pairs", **FEW, agents=str(retrained))
    shutil.rmtree(retrained)
    small = {"network.encoder": "flat", "network.flat_sizes": (16,), "seed": 7}
    untrained.write(retrained, "smoke", small, {100: 0.0, 200: 0.0})

    with pytest.raises(UserError, match="was trained again since the run started"):
        run_stage("collect", tmp_path / "pairs", **FEW, agents=str(retrained))
