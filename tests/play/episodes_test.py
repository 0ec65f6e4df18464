"""Episodes are a function of policy, environment and seeds; workers are really spawned and really
killed.
"""

from __future__ import annotations

import collections
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import Interruption
from motif_jax.envs import registry
from motif_jax.envs.spec import RUNNING, EnvironmentSpec, empty_observation
from motif_jax.nets import squashed_gaussian
from motif_jax.rl.actors import worker_process
from motif_jax.rl.actors.episodes import (
    EpisodeJob,
    EpisodeServer,
    LaneServer,
    PlaySettings,
    play_episodes,
    shared_block,
)
from motif_jax.rl.actors.policies import RandomPolicy, Uniforms, choose_actions, log_softmax
from motif_jax.rl.actors.worker_process import WorkerProcess
from tests.toys import Corridor, Flyer

pytestmark = pytest.mark.slow

SEEDS = list(range(100, 111))
OPTIONS = {"delay": 40}
SETTINGS = PlaySettings(workers=1, lanes=2)


class Counting:
    """A policy with a state: its logits depend on the observation and on the steps since
    `first`.
    """

    name = "counting"
    in_workers = False

    def __init__(self) -> None:
        self.batch_sizes: list[int] = []

    def initial_state(self, batch_size):
        return np.zeros(batch_size, np.int64)

    def act(self, observation, first, state):
        self.batch_sizes.append(len(first))
        state = np.where(first, 0, state) + 1
        rows = {
            name: np.asarray(v, np.float64).reshape(len(first), -1)
            for name, v in observation.items()
        }
        total = sum(
            rows[name] @ np.cos(np.arange(rows[name].shape[1]) + len(name)) for name in sorted(rows)
        )
        logits = np.sin(np.outer(total + state, np.arange(1, 3))).astype(np.float32)
        return logits, (total + state).astype(np.float32), state


def play(policy, skip=(), **settings):
    settings = PlaySettings(**{"workers": 2, "lanes": 4, **settings})
    played = play_episodes("Recall-v0", OPTIONS, SEEDS, policy, settings, skip=skip)
    return {episode.index: episode for episode in played}


def play_alone(policy, seed, greedy=False):
    """An episode of a network's policy without workers, lanes or batches: each field as a list of
    its rows.
    """
    environment = registry.make("Recall-v0", **OPTIONS)
    out = empty_observation(environment.spec)
    environment.reset(seed, out)
    state = policy.initial_state(1)
    rows = collections.defaultdict(list)
    end = RUNNING
    step = 0
    while end == RUNNING:
        rows["texts"].append(out["sign"].tobytes())
        rows["features"].append(out["features"].copy())
        observation = {name: array[None] for name, array in out.items()}
        logits, values, state = policy.act(observation, np.array([step == 0]), state)
        probabilities = np.exp(logits[0].astype(np.float64))
        probabilities /= probabilities.sum()
        if greedy:
            action = int(probabilities.argmax())
        else:
            action = int(
                np.searchsorted(probabilities.cumsum(), Uniforms(seed).at(step), side="right")
            )
        reward, end = environment.step(action, out)
        step += 1
        rows["actions"].append(action)
        rows["rewards"].append(reward)
        rows["values"].append(values[0])
        rows["probabilities"].append(probabilities)
        rows["log_probs"].append(np.log(probabilities[action]))
    # Recall-v0 shows its last observation to rewards.
    rows["texts"].append(out["sign"].tobytes())
    rows["features"].append(out["features"].copy())
    return rows, environment.episode_info(), end


def assert_same_episode(episode, alone):
    rows, info, end = alone
    np.testing.assert_array_equal(episode.actions, rows["actions"])
    np.testing.assert_array_equal(episode.rewards, np.float32(rows["rewards"]))
    assert (episode.info, episode.end) == (info, end)
    assert [episode.texts[row].tobytes() for row in episode.text_index] == rows["texts"]
    np.testing.assert_allclose(episode.values, rows["values"], rtol=1e-5)
    np.testing.assert_allclose(episode.log_probs, rows["log_probs"], rtol=1e-4, atol=1e-5)


def test_episodes_are_those_that_are_played_alone():
    policy = Counting()

    episodes = play(policy, keep_fields=("features",), keep_probabilities=True)

    assert [episode.seed for _, episode in sorted(episodes.items())] == SEEDS
    for episode in episodes.values():
        rows, info, end = play_alone(policy, episode.seed)
        assert_same_episode(episode, (rows, info, end))
        np.testing.assert_array_equal(episode.fields["features"], rows["features"])
        np.testing.assert_allclose(
            episode.probabilities, rows["probabilities"], rtol=1e-4, atol=1e-6
        )


def test_a_network_reads_half_of_the_lanes_in_every_batch():
    policy = Counting()

    play(policy)

    assert set(policy.batch_sizes) == {2}


def test_a_greedy_episode_has_the_most_likely_actions():
    policy = Counting()

    (episode,) = play(policy, skip=range(1, 99), greedy=True).values()

    assert_same_episode(episode, play_alone(policy, SEEDS[0], greedy=True))
    assert (episode.fields, episode.probabilities) == ({}, None)


def test_a_workers_episode_has_no_numbers_of_a_network():
    (episode,) = play(RandomPolicy(), skip=range(1, 99)).values()

    spec = registry.spec("Recall-v0", **OPTIONS)
    choose = RandomPolicy().player(SEEDS[0], spec)
    assert episode.actions.tolist() == [choose({}) for _ in range(len(episode))]
    assert (episode.values, episode.log_probs, episode.probabilities) == (None, None, None)


def test_texts_are_stored_once_and_counted():
    (episode,) = play(RandomPolicy(), skip=range(1, 99)).values()

    texts = [text.tobytes().rstrip(b"\0") for text in episode.texts]
    assert texts == [b"the cue is 3", b"", b"which cue?"]
    # The cue, 40 blank steps, the question, and the blank observation after it.
    assert episode.text_index.tolist() == [0, *[1] * 40, 2, 1]
    assert episode.text_count.tolist() == [1, *range(1, 41), 1, 41]


def test_skipped_episodes_are_not_played():
    assert set(play(RandomPolicy(), skip={0, 3, 7})) == {1, 2, 4, 5, 6, 8, 9, 10}


def test_steps_are_counted_while_no_episode_has_ended():
    counts = []
    settings = PlaySettings(workers=1, lanes=2)

    episodes = list(
        play_episodes("Recall-v0", OPTIONS, SEEDS[:2], Counting(), settings, on_steps=counts.append)
    )

    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == sum(len(episode.actions) for episode in episodes)


def test_a_killed_worker_is_replaced_and_its_episodes_are_replayed():
    undisturbed = play(Counting(), workers=1, skip={0, 3})
    deaths = []
    episodes = {}

    settings = PlaySettings(workers=2, lanes=4)
    for episode in play_episodes(
        "Recall-v0", OPTIONS, SEEDS, Counting(), settings, skip={0, 3}, on_death=deaths.append
    ):
        episodes[episode.index] = episode
        if len(episodes) == 2:
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    assert deaths == [1]
    assert set(episodes) == set(undisturbed)
    for index, episode in episodes.items():
        np.testing.assert_equal(vars(episode), vars(undisturbed[index]))


def test_a_restored_episode_shows_that_it_plays_at_each_step(monkeypatch):
    """Its actions are played within one request, which may take longer than a process may be
    silent.
    """
    signs = []
    monkeypatch.setattr("motif_jax.rl.actors.episodes.note_progress", lambda: signs.append(1))
    spec = registry.spec("Recall-v0", **OPTIONS)
    setup = {
        "environment": "Recall-v0",
        "options": OPTIONS,
        "keep_fields": (),
        "lanes": 1,
        "workers": 1,
        "worker": 0,
    }
    blocks = {
        name: shared_block((1, *array.shape), array.dtype)
        for name, array in spec.observation.items()
    }
    actions = shared_block((1, *spec.action.shape), spec.action.dtype)
    server = LaneServer(
        {**setup, "blocks": blocks, "actions": actions, "at": shared_block((1,), "int32")}
    )

    server.answer(([], [(0, 0, SEEDS[0], [0] * 20)]))

    assert len(signs) == 1 + 20
    server.close()


class Slow(RandomPolicy):
    def player(self, seed, spec):
        time.sleep(1.6)  # processes are looked at once a second
        return super().player(seed, spec)


def test_a_slow_bot_is_no_hanging_engine(monkeypatch):
    monkeypatch.setattr(worker_process, "HANG_SECONDS", 0.5)
    deaths = []

    episodes = list(
        play_episodes("Recall-v0", OPTIONS, SEEDS[:1], Slow(), SETTINGS, on_death=deaths.append)
    )

    assert len(episodes) == 1
    assert deaths == []


def test_a_worker_that_still_starts_does_not_hear_ctrl_c():
    setup = {
        "environment": "Recall-v0",
        "options": OPTIONS,
        "policies": [RandomPolicy()],
    }
    worker = WorkerProcess(EpisodeServer, setup)

    os.kill(worker.process.pid, signal.SIGINT)
    worker.connection.send(EpisodeJob(0, SEEDS[0]))

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
    policy = make(Corridor.make_spec(name))
    line = rf"episode 1 with seed {SEEDS[1]} ended 3 worker processes: give another .*, or play only the 1 b"

    with pytest.raises(UserError, match=line):
        list(play_episodes(name, {}, SEEDS[:3], policy, SETTINGS))

    assert not multiprocessing.active_children()


class Broken(RandomPolicy):
    def player(self, seed, spec):
        raise KeyError("a bug in a worker")


def test_an_exception_in_a_worker_is_shown_and_not_retried():
    with pytest.raises(
        RuntimeError, match=r"a worker process failed:(.|\n)*KeyError: 'a bug in a worker'"
    ):
        list(play_episodes("Recall-v0", OPTIONS, SEEDS, Broken(), SETTINGS))

    assert not multiprocessing.active_children()


def test_stop_ends_early_and_leaves_no_process():
    stop = Interruption()
    indices = []

    for episode in play_episodes("Recall-v0", OPTIONS, SEEDS, RandomPolicy(), SETTINGS, stop=stop):
        indices.append(episode.index)
        stop.requested = True

    assert 1 <= len(indices) < len(SEEDS)
    assert not multiprocessing.active_children()


def test_uniforms_depend_on_seed_and_step_alone():
    forward = Uniforms(5)
    jumping = Uniforms(5)
    numbers = [forward.at(step) for step in range(3000)]

    assert [jumping.at(step) for step in (2999, 0, 1024, 7)] == [
        numbers[step] for step in (2999, 0, 1024, 7)
    ]
    assert Uniforms(6).at(0) != numbers[0]
    assert abs(np.mean(numbers) - 0.5) < 0.03


PROBABILITIES = np.array([0.1, 0.0, 0.6, 0.3])
LOGITS = np.log(PROBABILITIES[None] + 1e-300).repeat(4000, 0)
UNIFORMS = (np.arange(4000) + 0.5) / 4000
NUMBERED = EnvironmentSpec({}, 4)
REAL = EnvironmentSpec({}, 0, action_size=2)


def test_actions_follow_the_distribution():
    actions, log_probs = choose_actions(LOGITS, UNIFORMS, False, NUMBERED)

    shares = np.bincount(actions, minlength=4) / 4000
    np.testing.assert_allclose(shares, PROBABILITIES, atol=1e-3)
    np.testing.assert_allclose(np.exp(log_probs), PROBABILITIES[actions], rtol=1e-5)


def test_real_numbers_are_drawn_by_the_uniform_number_alone():
    outputs = np.tile([0.3, -0.2, 0.0, 1.0], (4000, 1))

    actions, log_probs = choose_actions(outputs, UNIFORMS, False, REAL)
    again, _ = choose_actions(outputs[:3], UNIFORMS[:3], False, REAL)
    medians, _ = choose_actions(outputs[:3], UNIFORMS[:3], True, REAL)

    np.testing.assert_array_equal(again, actions[:3])
    np.testing.assert_allclose(medians, np.tanh(outputs[:3, :2]), rtol=1e-6)
    np.testing.assert_allclose(np.median(actions, axis=0), np.tanh([0.3, -0.2]), atol=0.06)
    assert -log_probs.mean() == pytest.approx(
        float(squashed_gaussian.entropy(np, outputs[0])), abs=0.03
    )


def test_greedy_actions_are_the_most_likely():
    actions, _ = choose_actions(LOGITS, UNIFORMS, True, NUMBERED)

    assert set(actions) == {2}


def test_a_number_just_below_one_draws_a_possible_action():
    actions, _ = choose_actions(LOGITS, np.full(4000, 1 - 1e-16), False, NUMBERED)

    assert actions.max() == 3


def test_large_logits_do_not_overflow():
    np.testing.assert_allclose(np.exp(log_softmax(np.array([1e4, 0.0]))), [1, 0])
