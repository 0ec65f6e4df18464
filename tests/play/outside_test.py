"""Collections in environments that stand outside the package and take the step limit alone."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_save_npy
from motif_jax.core.interruption import EXIT_CODE
from motif_jax.motif import collect, collection, sampling
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.play import agents
from tests.play.told import StopsAfter, Told, jobs_here
from tests.recorded_outputs import assert_matches_packed_recording, of_folder
from tests.reward_fixtures import load_config, run_config

CORRIDOR = "tests.toys:Corridor"


@pytest.fixture(autouse=True)
def told(monkeypatch):
    monkeypatch.setattr(sampling, "run_jobs", jobs_here)
    monkeypatch.setattr(collection, "Progress", told := Told())
    return told


def small(**changes):
    given = {
        "num_pairs": 12,
        "environment.max_episode_steps": 20,
        "length": 2,
        "spread": "messages",
        "seed": 4,
    }
    given |= {"start_share": 0.5, "workers": 1, "lanes": 2}
    return load_config("collect", "smoke", given | changes)


# Games that are shorter than a sub-sequence, but for every fifth seed.
BRIEF = {
    "environment.name": "tests.toys:Brief",
    "policy": "random",
    "screens": False,
    "length": 10,
    "start_share": 1.0,
}
SCRIPTED = {
    "environment.name": "Recall-v0",
    "policy": "mixture",
    "mixture.scripted": 2.0,
    "scripted": "tests.toys:Stubborn",
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("scripted", {**SCRIPTED, "drop_equal_captions": True, "start_share": 1.0}),
        ("nethack", {"environment.max_episode_steps": 60, "spread": "steps", "start_share": 0.2}),
        ("brief", {**BRIEF, "num_pairs": 4}),
    ],
)
def test_collections_hold_what_was_recorded(tmp_path, told, monkeypatch, record, name, changes):
    """One that is stopped on the way and goes on has the same dataset."""
    run_config(small(**changes), tmp_path / "whole")
    files = {path: text for path, text in of_folder(tmp_path / "whole", {}).items() if path != "config.json"}
    assert_matches_packed_recording(f"collection_{name}", {**files, "told": str(told)}, record)
    for time in (2, 3):
        monkeypatch.setattr(collect, "Interruption", lambda time=time: StopsAfter(time))
        assert collect.run(small(**changes), tmp_path / "stopped") == EXIT_CODE
    monkeypatch.setattr(collect, "Interruption", lambda: StopsAfter(10**9))
    run_config(small(**changes), tmp_path / "stopped")
    assert of_folder(tmp_path / "stopped", {}) == of_folder(tmp_path / "whole", {})
    assert not (tmp_path / "whole" / ".staging").exists()


def test_agents_whose_first_games_are_all_too_short_play_on(tmp_path, told, monkeypatch, record):
    def play(agent, environment, options, episodes, seeds, actions_file, how, stop):
        told.said.append((agent.name, environment, options, [*episodes], [*seeds][:4], how))
        assert len(told.said) < 500, "nothing new is played"
        for episode in episodes:
            atomic_save_npy(actions_file(episode), np.zeros(20 if seeds[episode] % 5 == 0 else 2, np.int8))
            yield episode

    found = [agents.CollectingAgent("run", 7), agents.CollectingAgent("run", 8)]
    monkeypatch.setattr(agents, "resolve", lambda named: found)
    monkeypatch.setattr(agents, "play", play)
    config = small(**{**BRIEF, "num_pairs": 4, "seed": 1, "policy": "agents", "agents": "run"})
    run_config(config, tmp_path / "dataset")
    dataset = PairsDataset.open(tmp_path / "dataset")
    assert min(dataset.info["episode"].reshape(-1)) >= config.lanes, "none of the first games is long enough"
    files = of_folder(tmp_path / "dataset", {}) | {"told": str(told)}
    assert_matches_packed_recording("collection_agents", files, record)


SILENT = {"environment.name": "tests.toys:Silent", "length": 1, "drop_equal_captions": True}
NO_GAME = "config.length=10: none of {} games was that long; give a smaller one, or other players, with another --workdir"
NO_CAPTIONS = (
    "config.drop_equal_captions=True: leaves out every pair, since all 105 sub-sequences have equal captions; give False, or an environment "
    "or players that show more, with another --workdir"
)


@pytest.mark.parametrize(
    ("limit", "most", "changes", "said"),
    [("_MOST_EMPTY", 2, {}, NO_GAME), ("_MOST_EQUAL", 100, SILENT, NO_CAPTIONS)],
)
def test_games_that_give_no_pair_are_said_in_one_line(tmp_path, monkeypatch, limit, most, changes, said):
    monkeypatch.setattr(collection, limit, most)
    for games in (2, 3):  # the same command plays one more and says it again
        with pytest.raises(UserError) as caught:
            collect.run(small(**{**BRIEF, "seed": 1, **changes}), tmp_path / "dataset")
        assert str(caught.value) == said.format(games)
