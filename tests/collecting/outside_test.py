"""Collections in environments that stand outside the package and take the step limit alone."""

from __future__ import annotations

import types

import numpy as np

from motif_jax.collecting import agents
from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.envs import registry
from motif_jax.playing import agent_policy
from motif_jax.playing.episodes import How
from motif_jax.stages import collect
from tests.reward_fixtures import load_config
from tests.toys import Flyer

CORRIDOR = "tests.toys:Corridor"


def test_pairs_are_collected_where_nothing_is_added_to_what_is_shown(tmp_path):
    config = load_config("collect", "smoke")
    config.environment.name, config.environment.max_episode_steps = "tests.toys:Talker", 20
    config.policy, config.screens, config.num_pairs, config.workers = "random", False, 20, 1
    config.start_share = 1.0
    collect.check(config, tmp_path / "dataset")
    assert collect.run(config, tmp_path / "dataset") is None
    messages = PairsDataset.open(tmp_path / "dataset").data["message"]
    assert bytes(np.asarray(messages).reshape(-1, 256)[0]).startswith(b"number ")


def test_agents_play_where_there_are_no_switches(tmp_path, monkeypatch):
    policy = Flyer(registry.spec(CORRIDOR))
    monkeypatch.setattr(agent_policy, "read_config", lambda folder: None)
    monkeypatch.setattr(agent_policy, "environment_of", lambda config: (CORRIDOR, {}))
    monkeypatch.setattr(agent_policy, "load", lambda *arguments: (policy, 7))
    played = agents.play(
        agents.Agent(str(tmp_path), 7),
        CORRIDOR,
        {"max_episode_steps": 9},
        [0, 1],
        [3, 4],
        lambda episode: tmp_path / f"{episode}.npy",
        How(workers=1, lanes=2),
        stop=types.SimpleNamespace(requested=False),
    )
    assert sorted(played) == [0, 1]
    assert set(np.load(tmp_path / "0.npy").tolist()) <= {0, 1, 2}
