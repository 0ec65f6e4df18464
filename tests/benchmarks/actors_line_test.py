"""The JSON line of the benchmark of actors, and the bare engine that is its baseline."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from motif_jax.benchmarks import actors
from motif_jax.benchmarks.actors import Bare, write_script
from motif_jax.core.seeds import derive
from motif_jax.envs.nethack.engine import NetHackEngine
from motif_jax.envs.nethack.game import Game
from motif_jax.envs.nethack.observation import MAX_EPISODE_STEPS
from motif_jax.rl.actors.rollouts import ActorsConfig
from tests.benchmarks.lines import line_of
from tests.benchmarks.stand_ins import StandInBareEngine, StandInPool
from tests.clocks import TickingClock

# Turns of three and two steps, of two groups of two games for each of two workers.
SIZES = {"workers": 2, "envs_per_worker": 4, "steps": 5, "turn": 3}


@pytest.fixture
def calls(clock: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of a pool and of bare engines whose turns take a second of each processor."""
    calls: list[Any] = []
    seconds = itertools.count(1.0)

    def write_script_size(task: str, games: int, length: int, seed: int) -> int:
        """Stands for `write_script`: a script is its number of games."""
        return games

    def processor_seconds(pids: Sequence[int]) -> float:
        return next(seconds) * len(pids)

    def make_pool(config: ActorsConfig, on_finished: Any) -> StandInPool:
        return StandInPool(config, calls)

    def make_bare_engine(script: int, seed: int) -> StandInBareEngine:
        return StandInBareEngine(script, calls)

    monkeypatch.setattr(actors, "ActorPool", make_pool)
    monkeypatch.setattr(actors, "Bare", make_bare_engine)
    monkeypatch.setattr(actors, "write_script", write_script_size)
    monkeypatch.setattr(actors, "processor_seconds", processor_seconds)
    monkeypatch.setattr(actors, "time", TickingClock(itertools.count(1.0)))
    return calls


@pytest.mark.usefixtures("calls")
def test_actors_are_measured_by_steps_of_one_core() -> None:
    line = line_of("actors", **SIZES)

    # 12 and 8 steps of a worker in a second of a core: all sides play them in the same time.
    assert (line["value"], line["baseline"]["value"], line["one_game"]["value"]) == (10, 10, 10)
    assert (line["ratio"], line["one_game"]["ratio"]) == (1, 1)


def test_bare_engines_play_the_turns_of_a_worker(calls: list[Any]) -> None:
    line_of("actors", **SIZES)

    # Four games take turns of three and two steps, and one game as many steps as they together.
    turns = [(4, 0, 3), (1, 0, 12), (4, 3, 5), (1, 12, 20)]
    assert [call for call in calls if isinstance(call, tuple)] == turns * 3


def test_groups_of_the_pool_play_five_steps_on_average(calls: list[Any]) -> None:
    line_of("actors", **SIZES)

    # Of four groups in three repeats.
    assert sum(len(call) for call in calls if isinstance(call, list)) == 3 * 4 * 5


@pytest.mark.parametrize("seed", [2, 4, 5])
def test_the_bare_engine_plays_the_script_that_the_game_wrote(seed: int) -> None:
    """In the two games somebody dies, answers questions, and reads long messages."""
    script = write_script("NetHackScore-v1", 2, 800, seed)
    bare = Bare(script, seed)

    bare.play(0, 500)
    bare.play(500, 800)

    for index, engine in enumerate(bare.engines):
        # The game by this package's rules, with the actions of the script.
        engine_of_game = NetHackEngine()
        game = Game("NetHackScore-v1", engine_of_game, MAX_EPISODE_STEPS, {})
        episode = 0
        game.start(derive(seed, index, episode))
        for action, _, ended in script[index]:
            assert bool(game.advance(action)[1]) == ended
            if ended:
                episode += 1
                game.start(derive(seed, index, episode))
        np.testing.assert_array_equal(engine.buffers.glyphs, engine_of_game.buffers.glyphs)
        np.testing.assert_array_equal(engine.buffers.blstats, engine_of_game.buffers.blstats)
        game.close()
    bare.close()
