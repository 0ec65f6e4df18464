"""Collections: what a dataset holds is what its games show, and a stopped collection goes on to the
same dataset.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pytest

from motif_jax.core.files import atomic_save_npy
from motif_jax.core.interruption import EXIT_CODE
from motif_jax.envs import registry
from motif_jax.envs.episode import play
from motif_jax.envs.nethack.scripted_players import PLAYERS
from motif_jax.envs.spec import RUNNING
from motif_jax.motif import collect, collection, sampling
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.play import agents
from motif_jax.rl.actors.policies import RandomPolicy
from tests.play.stand_ins import RecordedProgress, StopsAfter, jobs_here
from tests.reward_fixtures import load_config, run_config
from tests.toys import Stubborn

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def progress(monkeypatch):
    """What is shown of the progress; games are played in this process."""
    monkeypatch.setattr(sampling, "run_jobs", jobs_here)
    progress = RecordedProgress()
    monkeypatch.setattr(collection, "Progress", progress)
    return progress


def small(**changes):
    values = {
        "num_pairs": 12,
        "environment.max_episode_steps": 20,
        "length": 2,
        "spread": "messages",
        "seed": 4,
        "start_share": 0.5,
        "workers": 1,
        "lanes": 2,
    }
    return load_config("collect", "smoke", values | changes)


# Games that are shorter than a sub-sequence, but for every fifth seed.
BRIEF = {
    "environment.name": "tests.toys:Brief",
    "policy": "random",
    "screens": False,
    "length": 10,
    "start_share": 1.0,
}
COLLECTIONS = {
    "scripted": {
        "environment.name": "Recall-v0",
        "policy": "mixture",
        "mixture.scripted": 2.0,
        "scripted": "tests.toys:Stubborn",
        "drop_equal_captions": True,
        "start_share": 1.0,
    },
    "nethack": {"environment.max_episode_steps": 60, "spread": "steps", "start_share": 0.2},
    "brief": {**BRIEF, "num_pairs": 4},
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Gives the dataset of a collection by its name, and collects it once."""
    folders = {}

    def collected(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name) / "dataset"
            run_config(small(**COLLECTIONS[name]), folders[name])
        return PairsDataset.open(folders[name])

    return collected


def contents(folder):
    """The bytes of all files but for those that say with how many workers, when and by what command
    they were written.
    """
    left_out = ("config.json", "versions.json")
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in left_out]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def episodes_of(dataset):
    return [
        json.loads(line) for line in (dataset.folder / "episodes.jsonl").read_text().splitlines()
    ]


def played_again(dataset, seed, player, fields=()):
    """The observations of an episode, each with the reward that came with it, and the episode's
    return.
    """
    name = dataset.meta["config"]["environment"]["name"]
    options = {"max_episode_steps": dataset.meta["config"]["environment"]["max_episode_steps"]}
    missing = [field for field in fields if field not in registry.spec(name, **options).observation]
    environment = registry.make(name, **options, **({"fields": missing} if missing else {}))
    rows = []
    total = 0.0
    for transition in play(environment, seed, player.player(seed, environment.spec)):
        total += transition.reward
        if transition.end == RUNNING or environment.spec.last_text:
            observation = {field: array.copy() for field, array in transition.observation.items()}
            rows.append(observation | {"rewards": np.float32(transition.reward)})
    environment.close()
    return rows, total


def assert_holds_its_games(dataset, player_of, fields=(), text="message"):
    players = dataset.meta["players"]
    for pair, side in itertools.product(range(dataset.num_pairs), (0, 1)):
        info = {name: array[pair, side] for name, array in dataset.info.items()}
        player = player_of(players[info["player"]])
        rows, total = played_again(dataset, int(info["episode_seed"]), player, fields)
        for offset in range(dataset.length):
            row = rows[info["step"] + offset]
            message = dataset.data["message"][pair, side, offset]
            assert message.tobytes().rstrip(b"\0") == row[text].tobytes().rstrip(b"\0")
            for name in (*fields, "rewards"):
                np.testing.assert_array_equal(dataset.data[name][pair, side, offset], row[name])
        assert info["episode_return"] == pytest.approx(total)


def test_pairs_of_the_game_hold_its_screens_and_messages(datasets):
    dataset = datasets("nethack")

    assert set(dataset.data) == {"message", "blstats", "tty_chars", "tty_colors", "rewards"}
    assert_holds_its_games(dataset, PLAYERS.__getitem__, fields=("tty_chars", "tty_colors"))


def test_numbers_of_a_pair_are_those_of_the_last_step(datasets):
    dataset = datasets("nethack")

    last = dataset.data["blstats"][:, :, -1]
    # Positions in nle's blstats.
    for name, position in (
        ("score", 9),
        ("dlvl", 12),
        ("gold", 13),
        ("experience_level", 18),
        ("turns", 20),
    ):
        np.testing.assert_array_equal(dataset.info[name], last[:, :, position])


def test_pairs_of_scripted_players_hold_their_games(datasets):
    dataset = datasets("scripted")
    policies = {"uniform": RandomPolicy(), "tests.toys:Stubborn": Stubborn(None)}

    assert set(dataset.meta["players"]) == set(policies)
    assert set(np.unique(dataset.info["player"])) == {0, 1}
    assert_holds_its_games(dataset, policies.__getitem__, text="sign")


def test_pairs_with_equal_captions_are_dropped(datasets):
    dataset = datasets("scripted")

    for first, second in dataset.data["message"]:
        assert first.tobytes() != second.tobytes()


def test_more_games_are_played_in_place_of_dropped_pairs(tmp_path, progress):
    run_config(small(**COLLECTIONS["scripted"]), tmp_path / "dataset")

    assert "9 of 12 pairs have two different captions: playing on" in progress.entries
    assert PairsDataset.open(tmp_path / "dataset").num_pairs == 12


def test_pairs_are_drawn_of_all_games_that_are_long_enough(datasets):
    dataset = datasets("brief")

    by_episode = {row["episode"]: row for row in episodes_of(dataset)}
    # Of the games that are played, every fifth seed.
    assert all(row["seed"] % 5 == 0 for row in by_episode.values())
    assert set(dataset.meta["left_out_episodes"]) | set(by_episode) == set(
        range(dataset.meta["episodes"])
    )
    for episode, seed, length in zip(
        *(dataset.info[name].ravel() for name in ("episode", "episode_seed", "episode_length")),
        strict=True,
    ):
        assert by_episode[episode]["seed"] == seed
        assert by_episode[episode]["length"] == length == 20
    assert_holds_its_games(dataset, {"uniform": RandomPolicy()}.__getitem__, fields=("blstats",))


@pytest.mark.parametrize("name", COLLECTIONS)
def test_no_sub_sequence_is_used_twice(datasets, name):
    dataset = datasets(name)

    starts = Counter(
        zip(dataset.info["episode"].ravel(), dataset.info["step"].ravel(), strict=True)
    )
    assert max(starts.values()) == 1


@pytest.mark.parametrize("name", COLLECTIONS)
def test_a_stopped_collection_goes_on_to_the_same_dataset(datasets, tmp_path, monkeypatch, name):
    undisturbed = datasets(name).folder
    stopped = tmp_path / "stopped"

    for stops_after in (2, 3):
        monkeypatch.setattr(collect, "Interruption", lambda times=stops_after: StopsAfter(times))
        assert collect.run(small(**COLLECTIONS[name]), stopped) == EXIT_CODE
    monkeypatch.setattr(collect, "Interruption", lambda: StopsAfter(10**9))
    run_config(small(**COLLECTIONS[name]), stopped)

    assert contents(stopped) == contents(undisturbed)
    assert not (stopped / ".staging").exists()


@pytest.fixture
def played_by_agents(tmp_path, monkeypatch):
    """A collection of two agents that always take action 0; the episodes that each was asked to
    play, in order.
    """
    requests = []

    def play_zeros(agent, environment, options, episodes, seeds, actions_file, how, stop):
        assert len(requests) < 500, "nothing new is played"
        requests.append((agent.name, list(episodes)))
        for episode in episodes:
            steps = 20 if seeds[episode] % 5 == 0 else 2
            atomic_save_npy(actions_file(episode), np.zeros(steps, np.int8))
            yield episode

    both = [agents.CollectingAgent("run", 7), agents.CollectingAgent("run", 8)]
    monkeypatch.setattr(agents, "resolve", lambda text: both)
    monkeypatch.setattr(agents, "require_fit", lambda agent, environment, options: None)
    monkeypatch.setattr(agents, "play", play_zeros)
    changes = {"num_pairs": 4, "seed": 1, "policy": "agents", "agents": "run"}
    run_config(small(**BRIEF | changes), tmp_path / "dataset")
    return PairsDataset.open(tmp_path / "dataset"), requests


def test_agents_whose_first_games_are_all_too_short_play_on(played_by_agents):
    dataset, _ = played_by_agents

    # As many as lanes are played at first.
    assert dataset.info["episode"].min() >= 2
    assert dataset.num_pairs == 4


def test_an_agent_plays_each_of_its_episodes_once(played_by_agents):
    dataset, requests = played_by_agents

    episodes = Counter(episode for _, episodes in requests for episode in episodes)
    assert max(episodes.values()) == 1
    assert set(range(dataset.meta["episodes"])) <= set(episodes)
    players = {row["episode"]: row["player"] for row in episodes_of(dataset)}
    for name, names_episodes in requests:
        for episode in set(names_episodes) & set(players):
            assert players[episode] == name


def test_pairs_of_agents_hold_the_games_of_their_actions(played_by_agents):
    dataset, _ = played_by_agents

    # Action 0 leaves the number as it is.
    first = dataset.info["episode_seed"] % 97
    np.testing.assert_array_equal(
        dataset.data["blstats"][..., 0], np.repeat(first[..., None], 10, -1)
    )
    np.testing.assert_array_equal(dataset.info["score"], first)
