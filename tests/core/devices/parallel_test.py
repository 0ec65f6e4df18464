"""One, two and four devices compute the same update, in the same units of everything."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from motif_jax.core.devices.parallel import AXIS, DataParallel, in_turn
from motif_jax.core.devices.sharding import Sharded
from motif_jax.core.training import schedules
from motif_jax.rl.algorithms.appo import AppoAlgorithm, AppoTrainState
from motif_jax.rl.algorithms.trajectory import BATCH_AXES, TrajectoryBatch
from tests.agents import FLAT_SPEC, appo_config, flat_network, random_batch

NETWORK = flat_network()
CONFIG = appo_config(minibatches=2)  # of which every device, also of two hosts, has a part
OPTIMIZER = schedules.make_optimizer(CONFIG.optimizer)
ALGORITHM = AppoAlgorithm(CONFIG, NETWORK, OPTIMIZER)
UPDATE = functools.partial(ALGORITHM.update, axis_name=AXIS)


def batch_of(seed: int) -> TrajectoryBatch:
    """A batch whose quarters hold very different numbers of valid rows, the last none at all."""
    batch = random_batch(FLAT_SPEC, NETWORK.state_size, 6, 8, seed, padding=0.1)
    version = np.array(batch.parameter_version)
    version[1:, 2:4] = version[:, 6:] = -1
    return batch._replace(parameter_version=version)


def flatten(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(jax.device_get(tree))[0])


def states_of(devices: int, counts: Sequence[int]) -> Iterator[tuple[AppoTrainState, Any]]:
    """States and metrics of so many updates each, in ascending order; a state is gone when the next
    one is asked for.
    """
    parallel = DataParallel(jax.devices()[:devices])
    program = parallel.wrap(UPDATE, donate_state=True)
    state = parallel.replicate(ALGORITHM.init(jax.random.key(0)))
    for number in range(1, max(counts) + 1):
        state, metrics = program(state, parallel.put_batch(batch_of((number - 1) % 10), BATCH_AXES))
        if number in counts:
            yield state._replace(key=jax.random.key_data(state.key)), jax.device_get(metrics)


@pytest.mark.extra
def test_changes_of_the_parameters_agree() -> None:
    start = flatten(ALGORITHM.init(jax.random.key(0)).params)
    counts = 1, 100
    alone = [(flatten(state.params) - start, metrics) for state, metrics in states_of(1, counts)]
    for devices in (2, 4):
        for (state, metrics), (change, mean), updates in zip(
            states_of(devices, counts), alone, counts
        ):
            if updates == 1:
                jax.tree.map(
                    functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5),
                    metrics,
                    mean,
                )
            difference = flatten(state.params) - start - change
            assert np.linalg.norm(difference) < 1e-3 * np.linalg.norm(change), (devices, updates)
            assert int(state.step) == updates
            for leaf in jax.tree.leaves(state):
                copies = np.stack([shard.data for shard in leaf.addressable_shards])
                assert len(copies) == devices
                assert (copies == copies[0]).all()


def test_batches_are_split_in_order_along_their_axes() -> None:
    parallel = DataParallel(jax.devices()[:2])
    tree = {"rows": np.arange(12).reshape(3, 4), "state": jnp.arange(8).reshape(4, 2)}
    placed = parallel.put_batch(tree, {"rows": 1, "state": 0})
    np.testing.assert_array_equal(placed["rows"][1], tree["rows"][:, 2:])
    np.testing.assert_array_equal(placed["state"][0], tree["state"][:2])
    for leaf in placed.values():
        assert [shard.device for shard in leaf.addressable_shards] == list(parallel.local_devices)
    with pytest.raises(ValueError, match="a batch axis of 3 does not divide over 2 devices"):
        parallel.put_batch(tree, 0)
    assert parallel.device_count == parallel.global_device_count == 2
    one = parallel.acting(parallel.replicate({"a": np.arange(3)}))["a"]
    assert (one.tolist(), one.devices()) == ([0, 1, 2], {parallel.devices[0]})
    on_device = parallel.put_whole(tree, {"rows": 1, "state": 0})
    jax.tree.map(np.testing.assert_array_equal, on_device, placed)


@pytest.mark.parametrize("mesh", [None, {"data": 1, "fsdp": 2, "tensor": 1}])
def test_random_keys_and_donated_states_survive_the_round(mesh: dict[str, int] | None) -> None:
    devices = jax.devices()[:2]
    parallel = DataParallel(devices) if mesh is None else Sharded(mesh, devices)

    def core(state: Any, batch: Any) -> tuple[Any, Any]:
        key, draw = jax.random.split(state["key"])
        total = jax.lax.psum(batch.sum(), AXIS)
        return {"key": key, "sum": state["sum"] + total}, jax.random.uniform(draw)

    for donate in (True, False):
        fn = parallel.wrap(core, donate_state=donate)
        state = parallel.replicate({"key": jax.random.key(1), "sum": jnp.zeros(())})
        first = []
        sums_before = state["sum"]
        for _ in range(2):
            state, drawn = fn(state, parallel.put_batch(np.ones((4, 3), np.float32), 0))
            first.append(float(drawn))
        assert float(state["sum"]) == 24
        assert sums_before.is_deleted() == donate
        split = jax.random.split(jax.random.key(1))
        expected = [split[1], jax.random.split(split[0])[1]]
        np.testing.assert_allclose(
            first, [float(jax.random.uniform(random_key)) for random_key in expected]
        )


def test_a_program_waits_for_the_end_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    run = in_turn(lambda state, batch: (state, batch))
    leaves = [jnp.array(number) for number in range(4)]
    assert run(*leaves[:2]) == tuple(leaves[:2])
    leaves[0].delete()
    run(*leaves[2:])
    run(*leaves[2:])
    assert waited == [[], [leaves[1]], leaves[2:]]


def test_a_donated_start_gives_its_memory_although_numpy_had_it() -> None:
    parallel = DataParallel(jax.devices()[:1])
    fn = parallel.wrap(lambda state, _: (state + 1, None), donate_state=True)
    aligned = np.asarray(jnp.zeros(4096))  # as XLA aligns its arrays: jax would share it
    states = [aligned]
    placed = parallel.replicate_freeing(states)
    address = placed.addressable_data(0).unsafe_buffer_pointer()
    after, _ = fn(placed, parallel.put_batch(np.zeros((1, 1)), 0))
    assert states == []
    assert after.addressable_data(0).unsafe_buffer_pointer() == address
    np.testing.assert_array_equal(aligned, 0)
    np.testing.assert_array_equal(after, 1)
