"""What runs on a GPU is lowered for one, which needs none: nothing that only a CPU has, and nothing that a GPU does badly."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training import ensembles, schedules
from motif_jax.core.training.train_steps import Carry
from motif_jax.core.training.trainer import OfflineTrainer
from motif_jax.envs.spec import ArraySpec
from motif_jax.motif.reward import reward_data, reward_model
from motif_jax.motif.reward.config import RewardConfig, RewardNetworkSizes
from motif_jax.motif.reward.motif import MotifReward
from motif_jax.motif.reward.reward_model import RewardModel
from motif_jax.motif.reward.reward_task import RewardTask
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.play import agent_policy
from motif_jax.rewards import RewardSetup
from motif_jax.rl import batcher, inference
from motif_jax.rl.algorithms import appo
from motif_jax.rl.algorithms.trajectory import BATCH_AXES
from motif_jax.rl.call_packing import CallLayout
from motif_jax.rl.config import AgentReward
from motif_jax.rl.learner import Learner
from motif_jax.rl.publishing import Publisher
from motif_jax.schema import read_section
from tests.agents import NETHACK_SPEC, appo_config, nethack_network, random_batch, random_params
from tests.reward_fixtures import make_dataset, reward_config

Program = Any
# Functions of NVIDIA's libraries that programs may call: the QR factorisation of the orthogonal initialisation.
GPU_CALLS = {"cusolver_geqrf_ffi", "cusolver_orgqr_ffi"}
DEVICES = 2
LENGTH = 4
ROLLOUTS = 32
ROWS = (LENGTH + 1) * ROLLOUTS // DEVICES
# As many numbers may be added up in bfloat16.
SHORT_SUM = 8
REWARDS = {
    "message": {"message": "lt_cnn"},
    "everything": {"message": "lt_cnn", "status": True, "crop": True, "glyphs": True},
}
SPEC = dataclasses.replace(
    NETHACK_SPEC, observation={**NETHACK_SPEC.observation, "glyphs": ArraySpec((21, 79), "int16")}
)
CORES = [("gru", "float32"), ("lstm", "bfloat16")]
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lower` lowers for CUDA, and what looks at the platform finds a GPU."""
    for_cuda = functools.partialmethod(jax.stages.Traced.lower, lowering_platforms=("cuda",))
    monkeypatch.setattr(jax.stages.Traced, "lower", for_cuda)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(DataParallel, "platform", "gpu")


def lowered(program: Program, *args: Any) -> str:
    """The program in StableHLO, once it has been looked through for what no GPU runs."""
    text: str = program.lower(*args).as_text()
    unknown = set(re.findall(r"custom_call @([\w.]+)", text)) - GPU_CALLS
    assert not unknown, f"calls of what a GPU may not have: {unknown}"
    assert "f64>" not in text, "float64 takes 2 to 64 times as long as float32 on a GPU"
    assert not long_bfloat16_sums(text)
    return text


def long_bfloat16_sums(text: str) -> list[str]:
    """Sums of many bfloat16 numbers, which Hopper GPUs add up in bfloat16: reductions, scatters, and over devices."""
    sums = []
    reductions = r"stablehlo\.reduce\(.*applies stablehlo\.add across dimensions = \[([\d, ]*)\] : \(tensor<([\dx]*)xbf16>"
    for axes, shape in re.findall(reductions, text):
        sizes = [int(size) for size in shape.split("x")]
        if math.prod(sizes[int(axis)] for axis in axes.split(",")) > SHORT_SUM:
            sums.append(f"reduction of {shape} over {axes}")
    for kind in ("scatter", "all_reduce"):
        results = re.findall(rf'"stablehlo\.{kind}"\(.*?\}}\) : \(.*?\) -> (tensor<[^>]*>)', text, re.DOTALL)
        sums += [f"{kind} of {result}" for result in results if result.endswith("bf16>")]
    return sums


def products(text: str, kind: str) -> list[tuple[str, ...]]:
    """Types like '20x512xf32' of factors and result of the operations `kind`, 'convolution' or 'dot_general'."""
    types = r": \(tensor<([^>]*)>, tensor<([^>]*)>\) -> tensor<([^>]*)>"
    return re.findall(rf"stablehlo\.{kind}\b.*{types}", text)


def donated(text: str) -> list[bool]:
    """Of each argument of the program, whether its memory is given to a result."""
    signature = re.search(r"func\.func public @main\((.*?)\) -> ", text, re.DOTALL)
    assert signature is not None
    arguments = re.split(r", (?=%arg\d+:)", signature.group(1))
    return ["tf.aliasing_output" in part or "jax.buffer_donor" in part for part in arguments]


def assert_updated_in_place(text: str, state: appo.AppoTrainState, num_batch: int) -> None:
    """The memory of the whole state is used again, that of the `num_batch` arrays of a batch that are read is not."""
    is_donated = donated(text)
    num_state = len(is_donated) - num_batch
    assert is_donated == [True] * num_state + [False] * num_batch
    # What an update only writes is not an argument: a few scalars.
    leaves = jax.tree.leaves(state)
    written = [leaf for leaf in leaves if leaf.size == 1]
    assert len(leaves) >= num_state >= len(leaves) - len(written)


def learner_update(network: Any, reward: MotifReward | None = None) -> tuple[Program, Any, Any]:
    """The learner's program on two devices with its arguments, for the published settings."""
    config = appo_config()
    parallel = DataParallel(jax.devices()[:DEVICES])
    optimizer = schedules.make_optimizer(config.optimizer)
    shapes = jax.eval_shape(lambda: appo.make_state(network, optimizer, jax.random.PRNGKey(0)))
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    if reward is not None:
        state = state._replace(reward_params=reward.params)
    update = appo.make_update(network, optimizer, config, reward_fn=reward and reward.in_step)
    learner = Learner(update, state, parallel, Mock(), Meters())
    batch = random_batch(SPEC if reward else NETHACK_SPEC, network.state_size, LENGTH, ROLLOUTS, seed=0)
    return learner.update_program, learner.state, parallel.put_batch(batch, BATCH_AXES)


@pytest.mark.slow
@pytest.mark.parametrize(("core", "dtype"), CORES)
def test_an_update_runs_on_a_gpu_as_it_should(core: str, dtype: str) -> None:
    program, state, batch = learner_update(nethack_network(core=core, dtype=dtype))
    text = lowered(program, state, batch)
    assert_updated_in_place(text, state, len(jax.tree.leaves(batch)))
    short = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    convolutions = products(text, "convolution")
    dots = products(text, "dot_general")
    assert len(convolutions) == 3 + 5  # the first one needs no gradient by the picture
    assert all(kind.endswith(f"x{short}") for types in convolutions for kind in types)
    # A GPU convolves pictures, in squares of 4x4 pixels: the table that stands for the first convolution on a CPU is a matter
    # of gathers.
    assert convolutions[0][0] == f"{ROWS}x18x18x48x{short}"
    exact = [types for types in dots if not all(kind.endswith(f"x{short}") for kind in types)]
    # In bfloat16 the heads alone are exact: policy and value, forwards and by weights and features.
    assert len(exact) == (0 if dtype == "float32" else 6)
    assert len(dots) > 20
    # Nor are gradients summed up in bfloat16 over the rows of a rollout.
    shapes = {"x".join(map(str, leaf.shape)) for leaf in jax.tree.leaves(state.params)}
    assert not {shape for shape in shapes if re.search(rf"stablehlo\.add .*: tensor<{shape}xbf16>", text)}


@pytest.mark.slow
def test_so_does_an_update_that_computes_the_intrinsic_reward() -> None:
    everything = RewardNetwork(RewardArchitecture(**REWARDS["everything"], dtype="bfloat16"))
    params = random_params(everything)  # type: ignore[arg-type]
    statistics = {"mean": 0.5, "variance": 2.0, "quantile_levels": [0.5], "quantiles": [0.1]}
    model = RewardModel(Path("reward"), 0, everything, params, 1, statistics, {}, [])
    setup = RewardSetup(AgentReward(), SPEC)
    reward = MotifReward(model, model.normalisation(True, 0.5, False), setup)
    program, state, batch = learner_update(nethack_network(dtype="bfloat16"), reward)
    text = lowered(program, state, batch)
    assert len(jax.tree.leaves(state.reward_params)) > 20
    # The batch's own intrinsic reward is not read.
    assert_updated_in_place(text, state, len(jax.tree.leaves(batch)) - 1)
    assert len(products(text, "convolution")) > 3 + 5 + 6


@pytest.mark.extra
@pytest.mark.parametrize(("core", "dtype"), CORES)
def test_acting_runs_on_a_gpu(core: str, dtype: str) -> None:
    network = nethack_network(core=core, dtype=dtype)
    params = random_params(network)
    lowered(Publisher([], network.prepare).copy_program, params)
    prepared = jax.eval_shape(network.prepare, params)
    assert not jax.tree.leaves(prepared.tables)
    # Ten groups of four environments, each with three slots; five groups are served.
    rows = np.zeros(20, np.int32)
    table = network.initial_state(41)
    spec = network.spec.observation
    fields = {name: (spec[name].shape, spec[name].dtype) for name in network.fields}
    layout = CallLayout.of(5, 4, fields)
    state = inference.ActingState(table, network.initial_state(121), jnp.int32(0))
    key = jax.random.PRNGKey(0)
    packed = np.zeros(layout.size, np.uint8)
    program = inference.CallProgram(network, layout).run
    text = lowered(program, prepared, state, key, packed)
    short = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    assert products(text, "convolution")[0][0] == f"20x18x18x48x{short}"
    num_params = len(jax.tree.leaves(prepared))
    assert donated(text) == [False] * num_params + [True] * 3 + [False] * 2
    observation = layout.views(packed).observation
    first = np.ones(20, np.uint8)
    lowered(inference.gather_rows, table, rows)
    lowered(batcher.select_rows, [table, table], np.zeros(41, np.int32))
    policy = agent_policy.AgentPolicy("agent", network, params)
    lowered(policy.apply, params, observation, first, network.initial_state(20))


@pytest.mark.extra
@both_dtypes
@pytest.mark.parametrize("inputs", ["message", pytest.param("everything", marks=pytest.mark.slow)])
def test_training_a_reward_runs_on_a_gpu(inputs: str, dtype: str, tmp_path: Path) -> None:
    make_dataset(tmp_path, pairs=300, glyphs=inputs == "everything")
    network = RewardNetworkSizes(**REWARDS[inputs], dtype=dtype)
    config = dataclasses.replace(read_section(RewardConfig, reward_config(tmp_path)), network=network)
    data = reward_data.load(config)
    parallel = DataParallel(jax.devices()[:DEVICES])
    task = RewardTask(config, data, parallel)
    trainer = OfflineTrainer(task, parallel)
    params = jax.eval_shape(lambda: ensembles.init_state(task.network, task.optimizer, jax.random.key(0)))
    state = Carry(params, np.int32(0), data.messages)
    batches = task.batches(0, task.chunk_steps)
    # All steps of a chunk are one program.
    assert len(batches.unique) > 1
    assert trainer.steps_per_call is None
    placed = parallel.put_batch(batches, reward_data.axes(batches))
    text = lowered(trainer.train, state, placed)
    num_state = len(jax.tree.leaves(state))
    assert donated(text)[:num_state] == [True] * num_state
    assert not any(donated(text)[num_state:])
    short = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    convolutions = products(text, "convolution")
    assert len(convolutions) >= 3 * 6
    assert all(kind.endswith(f"x{short}") for types in convolutions for kind in types)
    first = jax.tree.map(lambda leaf: leaf[:1], batches)
    placed = parallel.put_batch(first, reward_data.axes(first))
    lowered(task.rewards_of_steps, (params.params, data.messages), placed)
    if inputs == "message":
        messages = parallel.put_batch(np.zeros((1024, 256), np.uint8), 0)
        lowered(task.rewards_of_messages, params.params, messages)
        # Looked up on a GPU where JAX_PLATFORMS leaves the CPU out.
        program = reward_model.message_program(task.network.architecture, 1, None)
        lowered(program, params.params, np.zeros((8, 256), np.uint8))
