"""A training over a mesh is the training of one device, in whatever way it is split, and continues
on another mesh.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec

from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.devices import sharding
from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.devices.sharding import Sharded, training_devices
from motif_jax.core.errors import UserError
from motif_jax.core.training import gradient_sums
from motif_jax.core.training.gradient_sums import Sums, TrainState
from motif_jax.lm import config, finetune_params
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.text_batches import TokenBatch
from tests.lm import recipes

STEPS = 20
ROWS = 8
# Of every size a whole number of parts, and a vocabulary that none of them divides.
GPT2 = config.parse({**recipes.CONFIGS["gpt2"], "n_layer": 1})


def devices(mesh: tuple[int, int, int]) -> Sharded:
    return Sharded(dict(zip(sharding.AXES, mesh, strict=True)), jax.devices()[: int(np.prod(mesh))])


def batch(settings: config.ModelConfig) -> TokenBatch:
    """Two micro-batches; rows have unequal numbers of tokens that count."""
    draws = np.random.default_rng(0)
    tokens = draws.integers(3, settings.vocab_size, (2, ROWS, 6)).astype(np.int32)
    valid = np.arange(6) < draws.integers(1, 7, (2, ROWS, 1))
    weights = (valid & (np.arange(6) > 0)).astype(np.float32)
    read = (tokens, valid) if settings.encoder_layers > 0 else ()
    return TokenBatch(tokens, valid, np.roll(tokens, -1, axis=2), weights, *read)


def first_state(settings: config.ModelConfig) -> TrainState:
    params = jax.jit(LanguageModel(settings).init)(jax.random.key(0))
    return jax.device_get(TrainState(params, optax.adam(1e-3).init(params), np.int32(0)))


@pytest.mark.parametrize("mesh", [(2, 1, 2), (2, 2, 1), (1, 1, 4)])
def test_a_process_reads_the_rows_that_it_put(mesh: tuple[int, int, int]) -> None:
    rows = np.arange(24.0).reshape(3, 8)
    placed = devices(mesh).put_batch({"rows": rows}, 1)
    np.testing.assert_array_equal(devices(mesh).own_part(placed)["rows"], rows[None])


def train(settings: config.ModelConfig, parallel: DataParallel) -> tuple[Any, Any, Any]:
    """Gradient before and losses of `STEPS` steps, and the state behind them."""
    model = LanguageModel(settings)

    def sums_of(params: Any, frozen: Any, batch: TokenBatch, key: Any) -> Sums:
        states = finetune_params.states_of(model, params, batch)
        logits = functools.partial(model.logits, params)
        return finetune_params.token_sums(logits, states, batch.targets, batch.weights)

    reduce = functools.partial(jax.lax.psum, axis_name=AXIS)
    update = gradient_sums.make_update(sums_of, optax.adam(1e-3), reduce)

    def core(state: TrainState, batches: TokenBatch) -> tuple[TrainState, Any]:
        gradient, _ = reduce(gradient_sums.gradient_sums(sums_of, state.params, None, batches))

        def step(state: TrainState, _: None) -> tuple[TrainState, jax.Array]:
            state, metrics = update(state, None, batches)
            return state, metrics["loss"]

        state, losses = jax.lax.scan(step, state, None, STEPS)
        return state, (gradient, losses)

    run = parallel.wrap(core, donate_state=True)
    placed = parallel.put_batch(batch(settings), 1)
    state, (gradient, losses) = run(parallel.replicate(first_state(settings)), placed)
    return gradient, jax.device_get(losses), state


@functools.cache
def alone(architecture: str) -> tuple[Any, Any, Any]:
    return jax.device_get(train(small(architecture), DataParallel(jax.devices()[:1])))


def small(architecture: str) -> config.ModelConfig:
    if architecture == "gpt2":
        return GPT2
    values = dict(recipes.CONFIGS["t5_gated" if architecture == "t5" else architecture])
    layers = (
        {"num_layers": 1, "num_decoder_layers": 1}
        if architecture == "t5"
        else {"num_hidden_layers": 1}
    )
    # T5's fresh gradients are near nothing at its published scale.
    return config.parse({**values, **layers, "num_heads": 2, "vocab_size": 64})


OTHERS = [
    pytest.param(name, (1, 2, 2), marks=pytest.mark.extra)
    for name in ("gpt2", "t5", "llama", "qwen2")
]


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "mesh"), [("gpt2", (2, 2, 1)), *OTHERS])
def test_a_training_does_not_depend_on_how_it_is_split(
    architecture: str, mesh: tuple[int, int, int]
) -> None:
    parallel = devices(mesh)
    gradient, losses, state = train(small(architecture), parallel)
    expected_gradient, expected_losses, expected = alone(architecture)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert losses[-1] < losses[0] - 0.05

    def flat(tree: Any) -> np.ndarray:
        return ravel_pytree(jax.device_get(tree))[0]

    first = flat(first_state(small(architecture)).params)
    changes = flat(state.params) - first, flat(expected.params) - first
    for a, b, limit in ((flat(gradient), flat(expected_gradient), 1e-4), (*changes, 1e-3)):
        assert np.linalg.norm(a - b) <= limit * np.linalg.norm(b)
    for leaf, how in zip(*map(jax.tree.leaves, (state, parallel.shardings(state))), strict=True):
        assert leaf.sharding.is_equivalent_to(how, leaf.ndim), "what came back lies as what went in"


def test_every_device_holds_its_part_of_parameters_and_optimiser() -> None:
    parallel = devices((1, 2, 2))
    state = first_state(GPT2)
    placed = parallel.replicate(state)
    kernel = placed.opt_state[0].mu["decoder"]["block_0"]["feed_forward"]["activated"]["kernel"]
    assert kernel.sharding.spec == PartitionSpec("fsdp", "tensor")
    assert [shard.data.shape for shard in kernel.addressable_shards] == [(8, 32)] * 4
    # 61 tokens divide by nothing; norms are small.
    assert placed.params["embedding"].sharding.spec == PartitionSpec(None, "fsdp")
    assert placed.params["decoder"]["final_norm"]["norm"]["scale"].sharding.spec == PartitionSpec()
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(placed))
    assert held < 0.4 * sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(state))
    assert jax.tree.all(jax.tree.map(np.array_equal, jax.device_get(placed), state))


def test_a_batch_is_split_over_data_and_fsdp_alone() -> None:
    parallel = devices((2, 1, 2))
    assert (parallel.device_count, parallel.global_device_count) == (2, 2)
    placed = parallel.put_batch({"x": np.arange(24).reshape(3, 8)}, 1)["x"]
    assert placed.shape == (1, 3, 8)
    assert {shard.data.shape for shard in placed.addressable_shards} == {(1, 3, 4)}
    assert parallel.acting(placed) is placed
    with pytest.raises(ValueError, match=r"^a batch axis of 7 does not divide over 2 parts$"):
        parallel.put_batch(np.zeros((3, 7)), 1)


def test_a_mesh_over_hosts_has_its_parts_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [Mock(process_index=host, platform="cpu") for host in range(3) for _ in range(2)]
    parallel = Sharded({"data": 3, "fsdp": 1, "tensor": 2}, devices)  # type: ignore[arg-type]
    assert (parallel.device_count, parallel.global_device_count, parallel.platform) == (1, 3, "cpu")
    placed = parallel.mesh.axis_names, parallel.mesh.devices.tolist()
    assert placed == (sharding.AXES, [[devices[:2]], [devices[2:4]], [devices[4:]]])
    assert parallel.everywhere.mesh.devices.tolist() == [[devices[:2]]]
    with pytest.raises(UserError) as caught:
        Sharded({"data": 1, "fsdp": 2, "tensor": 3}, devices)  # type: ignore[arg-type]
    line = (
        "a batch in 2 parts (data x fsdp) does not divide over 3 hosts, each of which reads its own"
    )
    assert str(caught.value) == f"sharding: {line}"
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(
        jax, "local_devices", lambda process_index: devices[2 * process_index :][:2]
    )
    assert (training_devices(1), training_devices(None)) == (devices[::2], devices)
    monkeypatch.setattr(DataParallel, "put_batch", lambda self, tree, axis: (tree, axis))
    for index in range(3):
        monkeypatch.setattr(jax, "process_index", lambda index=index: index)
        split = DataParallel(devices).put_whole({"x": np.arange(12).reshape(2, 6)}, 1)  # type: ignore[arg-type]
        np.testing.assert_equal(
            split, ({"x": np.arange(12).reshape(2, 6)[:, 2 * index : 2 * index + 2]}, 1)
        )


def test_a_checkpoint_goes_on_on_another_mesh(tmp_path: Path) -> None:
    state = first_state(GPT2)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, {"state": devices((1, 2, 2)).replicate(state)}, asynchronous=False)
        restored = checkpoints.restore(3, {"state": state})["state"]
    placed = devices((1, 4, 1)).replicate(restored)
    assert jax.tree.all(jax.tree.map(np.array_equal, jax.device_get(placed), state))
    kernel = placed.params["decoder"]["block_0"]["attention"]["query"]["kernel"]
    assert [shard.data.shape for shard in kernel.addressable_shards] == [(4, 16)] * 4
