from __future__ import annotations

import json
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

from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.devices.services import ServiceFailedError
from motif_jax.core.interruption import Interruption
from motif_jax.core.metrics import read_metrics
from motif_jax.rl import settings
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.config import agent_config
from motif_jax.rl.inference import bucket_sizes
from motif_jax.rl.publishing import Publisher
from motif_jax.rl.training import AgentTraining, Agreement
from tests.play.agent_runs import recall_config
from tests.processes import wait_until
from tests.recorded_outputs import assert_matches_packed_recording, of_folder
from tests.rl.runs import saved, steps_of, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_a_small_run_leaves_the_files_that_it_left(tmp_path: Path, record: bool) -> None:
    """By a simple algorithm and a reward that changes, in one thread, and gone on with; what a clock says stands still."""
    outside = "tests.rl.outside_parts"
    parts = {"algorithm__name": f"{outside}:Reinforce", "reward__kind": f"{outside}:Familiar"}
    sizes = {"batch_size": 48, "actors__workers": 1, "network__hidden_size": 4, "network__flat_sizes": (4,)}
    often = {"save_every_steps": 90, "log_every_seconds": 1e-9, "stats_episodes": 7, "serial": True}
    changes: dict[str, Any] = {**parts, **sizes, **often, "reward__intrinsic_coefficient": 0.5}
    shown = {}
    for steps in (130, 200, 200):  # in the end there is nothing to do
        run = train(tmp_path, recall_config(train_for_env_steps=steps, **changes))
        assert (run.clock.finished, run.clock.steps >= steps) == (True, True)
        _, items = saved(tmp_path, "progress")
        progress = {**items["progress"], "seconds": 0, "play": sorted(items["progress"]["play"])}
        files = of_folder(tmp_path, {tmp_path: "RUN"})
        del files["config.json"]
        files |= {"progress": json.dumps(progress), "steps": str(steps_of(tmp_path))}
        shown |= {f"{steps}/{name}": text for name, text in files.items()}
    assert_matches_packed_recording("small_run", shown, record)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[AgentTraining, Interruption, Future[bool]]]:
    """A run that has begun, in a thread of its own; it is stopped in the end."""
    config = recall_config(train_for_env_steps=10**9, log_every_seconds=0.2)
    run, stop = AgentTraining(settings.resolved(agent_config(config)), tmp_path), Interruption()
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

    # Stopped first: killed at any moment, a group could be one that waits for a slot, and would have none to drop.
    actor = pool.pids()[0]
    os.kill(actor, signal.SIGSTOP)
    wait_for(lambda: psutil.Process(actor).status() == psutil.STATUS_STOPPED)
    stopped_at = pool._clock

    def is_owed_an_answer() -> bool:
        """All that the actor had written by then has been read, and its group was told to continue."""
        commanded_at = pool._commanded_at[0]
        return commanded_at is not None and pool._all_read_at > max(stopped_at, commanded_at)

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
def test_a_failing_part_ends_the_run_with_its_cause(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _, future = running
    monkeypatch.setattr(run.system.batcher, "_assemble", lambda parts: 1 / 0)
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


@pytest.mark.parametrize("alone", [True, False])
def test_hosts_agree_on_each_sum_once(alone: bool) -> None:
    agreement = Agreement(DataParallel(jax.devices()[:2]))
    assert agreement._alone
    agreement._alone = alone
    assert agreement.result() is None
    agreement.launch([300, 0, 1])
    assert agreement.result() == [300, 0, 1]
    assert agreement.result() is None
