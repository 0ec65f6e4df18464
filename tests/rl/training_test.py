"""Trainings in this process: their files, a killed actor, a failing part; and what they are made
of.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from ml_collections import ConfigDict

from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.devices.services import ServiceFailedError
from motif_jax.core.interruption import Interruption
from motif_jax.core.metrics import read_metrics
from motif_jax.rl import settings
from motif_jax.rl.acting_program import bucket_sizes
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.config import agent_config
from motif_jax.rl.inference import Publisher
from motif_jax.rl.learner import HostSums
from motif_jax.rl.train_agent import AgentTraining
from tests.play.agent_runs import recall_config
from tests.processes import wait_until
from tests.rl.runs import episodes, saved, steps_of, train


def outside_config(**changes: Any) -> ConfigDict:
    """A serial run of an algorithm and a changing reward from outside the package, with a row of
    metrics for each update.
    """
    return recall_config(
        algorithm__name="tests.rl.outside_parts:Reinforce",
        reward__kind="tests.rl.outside_parts:RareTexts",
        reward__intrinsic_coefficient=0.5,
        batch_size=48,
        actors__workers=1,
        network__hidden_size=4,
        network__flat_sizes=(4,),
        save_every_steps=90,
        log_every_seconds=1e-9,
        stats_episodes=7,
        serial=True,
        **changes,
    )


@pytest.mark.extra
def test_a_run_of_outside_parts_logs_each_update(tmp_path: Path) -> None:
    run = train(tmp_path, outside_config(train_for_env_steps=130))

    rows = list(read_metrics(tmp_path))
    assert run.clock.finished
    assert [row["time/updates"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    assert rows[-1]["step"] == run.clock.steps >= 130
    # Of the algorithm, of the reward, and of the episodes.
    assert {"loss/total", "rare_texts/texts", "episode/return"} <= rows[-1].keys()


@pytest.mark.extra
def test_the_progress_counts_what_was_learned(tmp_path: Path) -> None:
    run = train(tmp_path, outside_config(train_for_env_steps=200))

    step, items = saved(tmp_path, "progress")
    progress = items["progress"]
    assert step == progress["env_steps"] == run.clock.steps
    assert progress["updates"] == len(list(read_metrics(tmp_path)))
    # Episodes that ended after the last learned step have lines, too.
    lines = episodes(tmp_path)
    start = lines.index(progress["episodes"][0])
    assert progress["episodes"] == lines[start : start + 7]
    assert len(lines) < start + 14
    assert progress["skipped_updates"] == 0
    assert len(progress["next_episode"]) == 6


@pytest.mark.extra
def test_checkpoints_are_saved_whenever_so_many_steps_have_passed(tmp_path: Path) -> None:
    train(tmp_path, outside_config(train_for_env_steps=200))

    rows = [row["step"] for row in read_metrics(tmp_path)]
    passed = [next(step for step in rows if step >= multiple) for multiple in (90, 180)]
    assert steps_of(tmp_path) == sorted({*passed, rows[-1]})


@pytest.mark.extra
def test_a_finished_run_has_nothing_to_do(tmp_path: Path) -> None:
    config = outside_config(train_for_env_steps=130)
    train(tmp_path, config)
    names = ("metrics.jsonl", "episodes.jsonl")
    before = [(tmp_path / name).read_bytes() for name in names]

    train(tmp_path, config)

    assert [(tmp_path / name).read_bytes() for name in names] == before


@pytest.mark.slow
def test_a_resumed_run_says_at_which_step_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, outside_config(train_for_env_steps=130))
    saved = steps_of(tmp_path)[-1]
    assert "goes on" not in capsys.readouterr().err

    train(tmp_path, outside_config(train_for_env_steps=200))

    assert f"goes on at step {saved} of 200" in capsys.readouterr().err


@pytest.mark.slow
def test_the_learner_sees_the_rows_of_actors_and_inference(tmp_path: Path) -> None:
    """While parameters stand still, each action has the probability with which it was drawn, memory
    and delay included.
    """
    config = recall_config(
        optimizer__learning_rate=1e-12,
        network__hidden_size=64,
        log_every_seconds=1e-9,
        train_for_env_steps=10_000,
    )
    train(tmp_path, config)

    rows = [row for row in read_metrics(tmp_path) if "policy/ratio_max" in row]
    assert len(rows) > 20
    assert max(row["lag/max"] for row in rows) >= 1, (
        "batches were played while others were learned from"
    )
    for row in rows:
        assert row["policy/ratio_min"] == pytest.approx(1, abs=1e-5)
        assert row["policy/ratio_max"] == pytest.approx(1, abs=1e-5)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[AgentTraining, Interruption, Future[bool]]]:
    """A run that has begun, in a thread of its own; it is stopped in the end."""
    config = recall_config(train_for_env_steps=10**9, log_every_seconds=0.2)
    run = AgentTraining(settings.resolved(agent_config(config)), tmp_path)
    stop = Interruption()
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(run.run, stop)
        try:
            wait_until(lambda: run.clock.steps > 500, "a start", interval=0.05)
            yield run, stop, future
        finally:
            stop.requested = True


@pytest.mark.slow
def test_training_goes_on_when_an_actor_is_killed(running: Any, tmp_path: Path) -> None:
    run, stop, future = running
    pool: ActorPool = run.system.sources[0].actors

    def wait_for(condition: Callable[[], bool]) -> None:
        wait_until(condition, "what comes next", interval=0.05)

    # Stopped first: killed at any moment, a group could be one that waits for a slot, and would
    # have none to drop.
    actor = pool.pids()[0]
    os.kill(actor, signal.SIGSTOP)
    wait_for(lambda: psutil.Process(actor).status() == psutil.STATUS_STOPPED)
    stopped_at = pool.clock

    def is_owed_an_answer() -> bool:
        """All that the actor had written by then has been read, and its group was told to
        continue.
        """
        commanded_at = pool.commanded_at[0]
        return commanded_at is not None and pool.all_read_at > max(stopped_at, commanded_at)

    wait_for(is_owed_an_answer)
    os.kill(actor, signal.SIGKILL)
    wait_for(lambda: pool.restarts == 1 and pool.dropped_slots == 1)
    steps = run.clock.steps
    wait_for(lambda: run.clock.steps > steps + 2_000)
    wait_for(lambda: list(read_metrics(tmp_path))[-1]["actors/dropped_slots"] == 1)
    assert future.running()
    stop.requested = True
    assert future.result(240) is False, "it is stopped and saved, and not at its end"


@pytest.mark.slow
def test_a_failing_part_ends_the_run_with_its_cause(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _, future = running
    monkeypatch.setattr(run.system.batcher, "add", lambda finished: 1 / 0)
    with pytest.raises(ServiceFailedError, match="batcher thread failed: division by zero"):
        future.result(240)


def test_published_parameters_survive_the_learners_next_update() -> None:
    publisher = Publisher([jax.devices()[1]], prepare=lambda tree: tree)
    params = {"w": jax.device_put(jnp.arange(4.0), jax.devices()[0])}
    publisher.publish(3, params)
    step = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    step(params)
    version, copy = publisher.newest(jax.devices()[1])
    assert version == 3
    np.testing.assert_array_equal(copy["w"], np.arange(4.0))


def test_bucket_sizes_end_with_all_groups() -> None:
    assert [bucket_sizes(n) for n in (1, 2, 48)] == [[1], [1, 2], [1, 2, 4, 8, 16, 32, 48]]


@pytest.mark.parametrize("is_one_host", [True, False])
def test_hosts_agree_on_each_sum_once(is_one_host: bool) -> None:
    sums = HostSums(DataParallel(jax.devices()[:2]))
    assert sums.is_one_host
    sums.is_one_host = is_one_host
    assert sums.result() is None
    sums.launch([300, 0, 1])
    assert sums.result() == [300, 0, 1]
    assert sums.result() is None
