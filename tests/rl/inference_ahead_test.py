"""Calls that are launched before the call before them is read give the same actions, states and
versions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import monitoring

from motif_jax.core.devices.meters import Meters
from motif_jax.core.interruption import never
from motif_jax.envs import registry
from motif_jax.rl.actors.rollouts import ActorsConfig, Ready, Rollouts
from motif_jax.rl.inference import Inference, Publisher

ENVS = 2
GROUPS = 4
SPEC = registry.spec("Recall-v0", delay=4, cues=3)


class Counting:
    """Stands for a network whose value is the number of its calls since an episode began, plus a
    parameter.
    """

    spec = SPEC
    fields = ("features",)

    def initial_state(self, rows: int) -> Any:
        return jnp.zeros((rows, 1))

    def apply(self, params: Any, rows: Any, state: Any, first: jax.Array) -> tuple[Any, Any, Any]:
        counted = jnp.where(first[0][:, None], 0.0, state) + 1.0
        return jnp.zeros((*first.shape, 3)), (counted[:, 0] + params)[None], counted

    def cropped(self, observation: Any) -> Any:
        return observation


class Scripted(Rollouts):
    """Groups that wait as the test says, and note the actions that reach them."""

    def __init__(self) -> None:
        options = {"delay": 4, "cues": 3}
        super().__init__(
            ActorsConfig("Recall-v0", options, 0, GROUPS, ENVS, 5, groups_per_worker=1)
        )
        self.waiting: list[list[Ready]] = []
        self.anew: list[set[int]] = []
        self.acted: list[Ready] = []
        self.slots.first[...] = 0

    def start(self, stopped: Callable[[], bool] = never) -> None:
        pass

    def ready(self, timeout: float) -> list[Ready]:
        self.restarted_groups.clear()
        self.restarted_groups |= self.anew.pop(0) if self.anew else set()
        return self.waiting.pop(0) if self.waiting else []

    def act(self, ready: Sequence[Ready]) -> None:
        self.acted += ready

    def episodes(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        self.slots.close()

    def _command(self, group: int, slot: int, row: int) -> None:
        pass


def make() -> tuple[Inference, Scripted, Publisher]:
    device = jax.devices()[0]
    actors = Scripted()
    publisher = Publisher([device], lambda params: params)
    publisher.publish(0, jnp.float32(0))
    inference = Inference(Counting(), actors, publisher, device, jax.random.PRNGKey(0), Meters())  # type: ignore[arg-type]
    return inference, actors, publisher


def test_a_call_is_read_once_the_next_is_launched() -> None:
    inference, actors, publisher = make()
    one = Ready(0, 0, 1)
    other = Ready(1, 3, 1)
    actors.waiting = [[one], [other], []]
    inference.serve_ahead()
    assert not actors.acted
    publisher.publish(1, jnp.float32(100))
    inference.serve_ahead()
    assert actors.acted == [one]
    inference.serve_ahead()
    assert actors.acted == [one, other]
    # Each has the parameters of its launch.
    assert actors.slots.parameter_version[0, 1].tolist() == [0, 0]
    assert actors.slots.behaviour_value[0, 1].tolist() == [1.0, 1.0]
    assert actors.slots.parameter_version[3, 1].tolist() == [1, 1]
    assert actors.slots.behaviour_value[3, 1].tolist() == [101.0, 101.0]


def test_a_restarted_group_is_not_sent_its_old_action() -> None:
    inference, actors, _ = make()
    old = Ready(0, 0, 2)
    new = Ready(0, 1, 0)
    other = Ready(1, 3, 2)
    actors.waiting = [[old, other], [new], []]
    actors.anew = [set(), {0}, set()]
    actors.slots.first[1, 0] = 1
    for _ in range(3):
        inference.serve_ahead()
    assert actors.acted == [other, new]
    assert actors.slots.behaviour_value[1, 0].tolist() == [1.0, 1.0]


def test_calls_ahead_choose_what_calls_in_turn_choose() -> None:
    waiting = [[Ready(g, 3 * g + row // 5, row % 5) for g in (0, 1, 3)] for row in range(7)]
    runs = []
    for ahead in (False, True):
        inference, actors, _ = make()
        actors.waiting = [*map(list, waiting)]
        for _ in range(len(waiting) + 1):
            inference.serve_ahead() if ahead else inference.serve()
        rows = np.arange(GROUPS * 3 * ENVS, dtype=np.int32)
        names = ("action", "behaviour_log_prob", "behaviour_value", "parameter_version")
        chosen = [actors.slots.arrays[name].copy() for name in names]
        runs.append([*chosen, np.asarray(inference.initial_states(rows)), actors.acted])
    for in_turn, ahead in zip(*runs, strict=True):
        np.testing.assert_array_equal(in_turn, ahead)
    # The second slot of a group begins with the state after five rows.
    assert runs[1][-2][1 * ENVS] == 5.0


def test_programs_are_compiled_together_and_once() -> None:
    compilations: list[str] = []

    def count(event: str, duration_secs: float, **more: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(threading.current_thread().name)

    # Copies of the state have programs, too, which all have in common.
    make()[0].compile()
    inference, actors, _ = make()
    actors.waiting = [[Ready(0, 0, 1)], [Ready(1, 3, 1)]]
    monitoring.register_event_duration_secs_listener(count)
    try:
        inference.compile()
        inference.serve()
        inference.serve()
    finally:
        monitoring.unregister_event_duration_listener(count)

    assert len(compilations) == len(inference.buckets)
    assert all(name.startswith("ThreadPool") for name in compilations)
