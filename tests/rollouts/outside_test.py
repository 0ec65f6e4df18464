"""Collections in environments that stand outside the package and take the step limit alone."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest

from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.envs import registry
from motif_jax.rollouts import agent_policy, agents, collection, sampling
from motif_jax.rollouts.episodes import PlaySettings
from motif_jax.stages import collect
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_save_npy
from tests.reward_fixtures import load_config, run_config
from tests.toys import Flyer

CORRIDOR = "tests.toys:Corridor"


@pytest.mark.slow
def test_random_and_scripted_players_take_part_where_there_is_only_a_short_text(tmp_path):
    config = load_config("collect", "smoke")
    config.environment.name, config.num_pairs, config.workers = "Recall-v0", 60, 1
    config.start_share, config.spread, config.seed = 1.0, "messages", 4
    config.mixture.scripted, config.scripted = 2.0, "tests.toys:Stubborn"
    run_config(config, tmp_path)
    dataset = PairsDataset.open(tmp_path)
    assert set(dataset.data) == {"message", "rewards"}, "screens and status only where there are any"
    rows = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert {row["player"] for row in rows} == {"uniform", "tests.toys:Stubborn"}, "not NetHack's habits"
    texts = {bytes(text).rstrip(b"\0") for text in np.asarray(dataset.data["message"]).reshape(-1, 256)}
    assert texts == {b"", b"which cue?", *(b"the cue is %d" % cue for cue in range(4))}
    assert "score" not in dataset.info
    assert {"success", "return", "length"} <= set(rows[0])


def test_agents_play_where_there_are_no_switches(tmp_path, monkeypatch):
    policy = Flyer(registry.spec(CORRIDOR))
    monkeypatch.setattr(agent_policy, "read_config", lambda folder: None)
    monkeypatch.setattr(agent_policy, "environment_of", lambda config: (CORRIDOR, {}))
    monkeypatch.setattr(agent_policy, "load", lambda *arguments: (policy, 7))
    agent, how = agents.CollectingAgent(str(tmp_path), 7), PlaySettings(workers=1, lanes=2)
    task = CORRIDOR, {"max_episode_steps": 9}, [0, 1], [3, 4], lambda episode: tmp_path / f"{episode}.npy"
    played = agents.play(agent, *task, how, stop=types.SimpleNamespace(requested=False))
    assert sorted(played) == [0, 1]
    assert set(np.load(tmp_path / "0.npy").tolist()) <= {0, 1, 2}


def _of_games(**changes):
    """Of games that are shorter than a sub-sequence, but for every fifth seed."""
    config = load_config("collect", "smoke")
    config.environment.name, config.environment.max_episode_steps = "tests.toys:Brief", 20
    config.policy, config.screens, config.num_pairs, config.workers = "random", False, 4, 1
    config.length, config.start_share, config.lanes, config.seed = 10, 1.0, 2, 1
    config.update_from_flattened_dict(changes)
    return config


@pytest.mark.slow
def test_agents_whose_first_games_are_all_too_short_play_on(tmp_path, monkeypatch):
    rounds = []

    def record(*arguments, record=sampling.record):
        rounds.append(arguments)
        assert len(rounds) < 50, "nothing new is played"
        yield from record(*arguments)

    def play(agent, environment, options, episodes, seeds, actions_file, how, stop):
        for episode in episodes:
            atomic_save_npy(actions_file(episode), np.zeros(20 if seeds[episode] % 5 == 0 else 2, np.int8))
            yield episode

    monkeypatch.setattr(agents, "resolve", lambda named: [agents.CollectingAgent(named, 7)])
    monkeypatch.setattr(agents, "play", play)
    monkeypatch.setattr(sampling, "record", record)
    config = _of_games(policy="agents", agents="runs/agent")
    run_config(config, tmp_path / "dataset")
    dataset = PairsDataset.open(tmp_path / "dataset")
    assert dataset.num_pairs == 4
    assert min(dataset.info["episode"].reshape(-1)) >= config.lanes, "none of the first games is long enough"


SILENT = {"environment.name": "tests.toys:Silent", "length": 1, "drop_equal_captions": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "most", "changes", "said"),
    [
        ("_MOST_EMPTY", 2, {}, r"length=10: none of \d games was that long; give a smaller"),
        ("_MOST_EQUAL", 100, SILENT, r"drop_equal_captions=True: leaves out every pair, since all \d+ sub-"),
    ],
)
def test_games_that_give_no_pair_are_said_in_one_line(tmp_path, monkeypatch, limit, most, changes, said):
    monkeypatch.setattr(collection, limit, most)
    for _ in range(2):  # the same command plays one more and says it again
        with pytest.raises(UserError, match=rf"config\.{said}"):
            collect.run(_of_games(**changes), tmp_path / "dataset")
