"""Episodes are a function of policy, environment and seeds; workers are really spawned and really killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import types

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.play.episode_worker import EpisodeServer, Uniforms
from motif_jax.play.episodes import PlaySettings, play_episodes
from motif_jax.play.policies import RandomPolicy, choose_actions, log_softmax
from motif_jax.rl.actors import worker_process
from motif_jax.rl.actors.worker_process import WorkerProcess
from tests.play.told import lines
from tests.recorded_outputs import assert_matches_packed_recording
from tests.toys import Corridor, Flyer

SEEDS = list(range(100, 111))
OPTIONS = {"delay": 40}
HOW = PlaySettings(workers=1, lanes=2)


class Counting:
    """A policy with a state: its logits depend on the observation and on the steps since `first`."""

    name = "counting"
    in_workers = False

    def __init__(self) -> None:
        self.batches: list[int] = []

    def initial_state(self, batch_size):
        return np.zeros(batch_size, np.int64)

    def act(self, observation, first, state):
        self.batches.append(len(first))
        state = np.where(first, 0, state) + 1
        rows = {name: np.asarray(v, np.float64).reshape(len(first), -1) for name, v in observation.items()}
        total = sum(rows[name] @ np.cos(np.arange(rows[name].shape[1]) + len(name)) for name in sorted(rows))
        logits = np.sin(np.outer(total + state, np.arange(1, 3))).astype(np.float32)
        return logits, (total + state).astype(np.float32), state


def play(policy, skip=(), **how):
    how = PlaySettings(**{"workers": 2, "lanes": 4, **how})
    return {r.index: r for r in play_episodes("Recall-v0", OPTIONS, SEEDS, policy, how, skip=skip)}


def test_records_say_what_was_played(record):
    policy = Counting()
    records = play(policy, keep_fields=("features",), keep_probabilities=True)
    assert set(policy.batches) == {2}, "the network always sees lanes / 2 rows"
    others = {
        "random": play(RandomPolicy(), skip=range(1, 99)),
        "greedy": play(policy, range(1, 99), greedy=True),
    }
    records |= {name: played[0] for name, played in others.items()}
    parts = {str(name): lines(vars(each) | each.fields) for name, each in records.items()}
    assert_matches_packed_recording("played_episodes", parts, record)


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_episodes_are_played_again():
    counted = {index: vars(one) for index, one in play(Counting(), workers=1).items() if index not in (0, 3)}
    deaths, records = [], {}
    how, more = PlaySettings(workers=2, lanes=4), {"skip": {0, 3}, "on_death": deaths.append}
    for record in play_episodes("Recall-v0", OPTIONS, SEEDS, Counting(), how, **more):
        records[record.index] = vars(record)
        if len(records) == 2:
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    np.testing.assert_equal(records, counted)
    assert deaths == [1]


class Slow(RandomPolicy):
    def player(self, seed, spec):
        time.sleep(1.6)  # processes are looked at once a second
        return super().player(seed, spec)


@pytest.mark.slow
def test_a_slow_bot_is_not_taken_for_an_engine_that_hangs(monkeypatch):
    monkeypatch.setattr(worker_process, "HANG_SECONDS", 0.5)
    deaths = []
    slow = list(play_episodes("Recall-v0", OPTIONS, SEEDS[:1], Slow(), HOW, on_death=deaths.append))
    assert (len(slow), deaths) == (1, [])


def test_a_worker_that_still_starts_does_not_hear_ctrl_c():
    setup = {"environment": "Recall-v0", "options": OPTIONS, "policy": RandomPolicy(), "keep_fields": ()}
    worker = WorkerProcess(EpisodeServer, setup)
    os.kill(worker.process.pid, signal.SIGINT)
    worker.connection.send((0, SEEDS[0]))
    assert worker.receive().index == 0
    worker.close()


class Deadly(Corridor):
    def reset(self, seed, out):
        if seed == SEEDS[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        super().reset(seed, out)


@pytest.mark.parametrize("make", [lambda spec: RandomPolicy(), Flyer], ids=["random", "batched"])
def test_an_episode_that_kills_its_workers_is_named(make):
    name = f"{__name__}:Deadly"
    said = rf"episode 1 with seed {SEEDS[1]} ended 3 worker processes: give another .*, or play only the 1 b"
    with pytest.raises(UserError, match=said):
        list(play_episodes(name, {}, SEEDS[:3], make(Corridor.make_spec(name)), HOW))
    assert not multiprocessing.active_children()


class Broken(RandomPolicy):
    def player(self, seed, spec):
        raise KeyError("a bug in a worker")


def test_an_exception_in_a_worker_is_shown_and_not_retried():
    with pytest.raises(RuntimeError, match=r"a worker process failed:(.|\n)*KeyError: 'a bug in a worker'"):
        list(play_episodes("Recall-v0", OPTIONS, SEEDS, Broken(), HOW))
    assert not multiprocessing.active_children()


def test_stop_ends_early_and_leaves_no_process():
    stop, seen = types.SimpleNamespace(requested=False), []
    for record in play_episodes("Recall-v0", OPTIONS, SEEDS, RandomPolicy(), HOW, stop=stop):
        seen.append(record.index)
        stop.requested = True
    assert 1 <= len(seen) < len(SEEDS)
    assert not multiprocessing.active_children()


def test_uniforms_depend_on_seed_and_step_alone():
    forward, jumping = Uniforms(5), Uniforms(5)
    expected = [forward.at(step) for step in range(3000)]
    assert [jumping.at(step) for step in (2999, 0, 1024, 7)] == [expected[s] for s in (2999, 0, 1024, 7)]
    assert Uniforms(6).at(0) != expected[0]
    assert abs(np.mean(expected) - 0.5) < 0.03


def test_actions_follow_the_distribution():
    logits = np.log(np.array([[0.1, 0.0, 0.6, 0.3]]) + 1e-300).repeat(4000, 0)
    uniforms = (np.arange(4000) + 0.5) / 4000
    actions, log_probs = choose_actions(logits, uniforms)
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / 4000, [0.1, 0, 0.6, 0.3], atol=1e-3)
    np.testing.assert_allclose(np.exp(log_probs), np.array([0.1, 0, 0.6, 0.3])[actions], rtol=1e-5)
    assert set(choose_actions(logits, uniforms, greedy=True)[0]) == {2}
    assert choose_actions(logits, np.ones(4000) * (1 - 1e-16))[0].max() == 3
    np.testing.assert_allclose(np.exp(log_softmax(np.array([1e4, 0.0]))), [1, 0])
