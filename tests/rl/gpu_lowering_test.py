"""What runs on a GPU is lowered for one, which needs none: nothing that only a CPU has, and nothing
that a GPU does badly.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training import ensembles, schedules
from motif_jax.core.training.trainer import Carry, OfflineTrainer
from motif_jax.envs.spec import ArraySpec
from motif_jax.motif.reward import reward_data, reward_model
from motif_jax.motif.reward.config import RewardConfig, RewardNetworkSizes
from motif_jax.motif.reward.motif import MotifReward
from motif_jax.motif.reward.reward_model import RewardModel
from motif_jax.motif.reward.reward_task import RewardTask
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.play import agent_policy
from motif_jax.rewards import RewardSetup
from motif_jax.rl import acting_program, batcher
from motif_jax.rl.acting_program import CallLayout
from motif_jax.rl.algorithms import appo
from motif_jax.rl.algorithms.trajectory import BATCH_AXES
from motif_jax.rl.config import AgentReward
from motif_jax.rl.inference import Publisher
from motif_jax.rl.learner import Learner
from motif_jax.schema import read_section
from tests.agents import NETHACK_SPEC, appo_config, nethack_network, random_batch, random_params
from tests.lowering import donated, lowered, products, unfit_for_a_gpu
from tests.reward_fixtures import make_dataset, reward_config
from tests.sets import extra

DEVICES = 2
LENGTH = 4
ROLLOUTS = 32
ROWS = (LENGTH + 1) * ROLLOUTS // DEVICES
REWARDS = {
    "message": {"message": "lt_cnn"},
    "everything": {"message": "lt_cnn", "status": True, "crop": True, "glyphs": True},
}
SPEC = dataclasses.replace(
    NETHACK_SPEC, observation={**NETHACK_SPEC.observation, "glyphs": ArraySpec((21, 79), "int16")}
)
# The types of StableHLO.
SHORT = {"float32": "f32", "bfloat16": "bf16"}


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[None]:
    """`lower` lowers for CUDA, and what looks at the platform finds a GPU."""
    for_cuda = functools.partialmethod(jax.stages.Traced.lower, lowering_platforms=("cuda",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.stages.Traced, "lower", for_cuda)
        patch.setattr(jax, "default_backend", lambda: "gpu")
        patch.setattr(DataParallel, "platform", "gpu")
        yield


def assert_updated_in_place(text: str, state: appo.AppoTrainState, num_batch: int) -> None:
    """The memory of the whole state is used again, that of the `num_batch` arrays of a batch that
    are read is not.
    """
    is_donated = donated(text)
    num_state = len(is_donated) - num_batch
    assert is_donated == [True] * num_state + [False] * num_batch
    # What an update only writes is not an argument: a few scalars.
    leaves = jax.tree.leaves(state)
    written = [leaf for leaf in leaves if leaf.size == 1]
    assert len(leaves) >= num_state >= len(leaves) - len(written)


def learner_update(network: Any, reward: MotifReward | None = None) -> tuple[Any, Any, Any]:
    """The learner's program on two devices with its arguments, for the published settings."""
    config = appo_config()
    parallel = DataParallel(jax.devices()[:DEVICES])
    optimizer = schedules.make_optimizer(config.optimizer)
    reward_fn = None if reward is None else reward.in_step
    algorithm = appo.AppoAlgorithm(config, network, optimizer, reward_fn)
    shapes = jax.eval_shape(algorithm.init, jax.random.PRNGKey(0))
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    if reward is not None:
        state = state._replace(reward_params=reward.params)
    learner = Learner(algorithm, state, parallel, Mock(), Meters())
    batch = random_batch(
        SPEC if reward else NETHACK_SPEC, network.state_size, LENGTH, ROLLOUTS, seed=0
    )
    return learner.update_program, learner.state, parallel.put_batch(batch, BATCH_AXES)


class Update(NamedTuple):
    """A learner's update, lowered, with its state and batch; `dtype` is that of the network."""

    text: str
    state: Any
    batch: Any
    dtype: str


@pytest.fixture(
    scope="module", params=[("gru", "float32"), extra(("lstm", "bfloat16"))], ids="-".join
)
def update(gpu: None, request: pytest.FixtureRequest) -> Update:
    core, dtype = request.param
    program, state, batch = learner_update(nethack_network(core=core, dtype=dtype))
    return Update(lowered(program, state, batch), state, batch, dtype)


@pytest.mark.slow
def test_an_update_is_fit_for_a_gpu(update: Update) -> None:
    assert unfit_for_a_gpu(update.text) == []


@pytest.mark.extra
def test_an_update_takes_over_the_memory_of_its_state(update: Update) -> None:
    assert_updated_in_place(update.text, update.state, len(jax.tree.leaves(update.batch)))


@pytest.mark.extra
def test_convolutions_of_an_update_are_in_the_networks_dtype(update: Update) -> None:
    convolutions = products(update.text, "convolution")

    # Three forwards, and their gradients; the first one needs none by the picture.
    assert len(convolutions) == 3 + 5
    assert all(kind.endswith(f"x{SHORT[update.dtype]}") for types in convolutions for kind in types)


@pytest.mark.extra
def test_a_gpu_convolves_squares_of_pixels(update: Update) -> None:
    """The table that stands for the first convolution on a CPU is a matter of gathers."""
    picture, _, _ = products(update.text, "convolution")[0]

    # 4x4 pixels of three colours each.
    assert picture == f"{ROWS}x18x18x48x{SHORT[update.dtype]}"


@pytest.mark.extra
def test_the_heads_alone_are_exact_in_an_update(update: Update) -> None:
    dots = products(update.text, "dot_general")
    exact = [
        types
        for types in dots
        if not all(kind.endswith(f"x{SHORT[update.dtype]}") for kind in types)
    ]

    assert len(dots) > 20
    # Policy and value, forwards and by weights and features.
    assert len(exact) == (0 if update.dtype == "float32" else 6)


@pytest.mark.extra
def test_gradients_are_not_summed_up_in_bfloat16_over_a_rollout(update: Update) -> None:
    shapes = {"x".join(map(str, leaf.shape)) for leaf in jax.tree.leaves(update.state.params)}

    assert not {
        shape
        for shape in shapes
        if re.search(rf"stablehlo\.add .*: tensor<{shape}xbf16>", update.text)
    }


@pytest.fixture(scope="module")
def rewarded_update(gpu: None) -> Update:
    """An update that computes the intrinsic reward of everything that a reward may read."""
    everything = RewardNetwork(RewardArchitecture(**REWARDS["everything"], dtype="bfloat16"))
    params = random_params(everything)  # type: ignore[arg-type]
    statistics = {"mean": 0.5, "variance": 2.0, "quantile_levels": [0.5], "quantiles": [0.1]}
    model = RewardModel(Path("reward"), 0, everything, params, 1, statistics, {}, [])
    setup = RewardSetup(AgentReward(), SPEC)
    reward = MotifReward(model, model.normalisation(True, 0.5, False), setup)
    program, state, batch = learner_update(nethack_network(dtype="bfloat16"), reward)
    return Update(lowered(program, state, batch), state, batch, "bfloat16")


@pytest.mark.extra
def test_a_rewarded_update_is_fit_for_a_gpu(rewarded_update: Update) -> None:
    assert unfit_for_a_gpu(rewarded_update.text) == []
    # It convolves for the reward, too.
    assert len(jax.tree.leaves(rewarded_update.state.reward_params)) > 20
    assert len(products(rewarded_update.text, "convolution")) > 3 + 5 + 6


@pytest.mark.extra
def test_a_rewarded_update_takes_over_the_memory_of_its_state(rewarded_update: Update) -> None:
    num_batch = len(jax.tree.leaves(rewarded_update.batch))

    # The batch's own intrinsic reward is not read.
    assert_updated_in_place(rewarded_update.text, rewarded_update.state, num_batch - 1)


class Acting(NamedTuple):
    """A network with parameters, and those that act."""

    network: Any
    params: Any
    prepared: Any
    dtype: str


# Ten groups of four environments, each with three slots; five groups are served.
ACTING_ENVS = 40
SERVED_ENVS = 20
SLOT_ROWS = 120


@pytest.fixture(
    scope="module", params=[("gru", "float32"), extra(("lstm", "bfloat16"))], ids="-".join
)
def acting(gpu: None, request: pytest.FixtureRequest) -> Acting:
    core, dtype = request.param
    network = nethack_network(core=core, dtype=dtype)
    params = random_params(network)
    return Acting(network, params, jax.eval_shape(network.prepare, params), dtype)


def call_layout(network: Any) -> CallLayout:
    """The layout of a call of inference for five groups of four environments."""
    spec = network.spec.observation
    fields = {name: (spec[name].shape, spec[name].dtype) for name in network.fields}
    return CallLayout.of(5, 4, fields)


def program_of_a_call(acting: Acting) -> str:
    network = acting.network
    layout = call_layout(network)
    # Both tables have a row more, for padding.
    envs = network.initial_state(ACTING_ENVS + 1)
    slots = network.initial_state(SLOT_ROWS + 1)
    state = acting_program.ActingState(envs, slots, jnp.int32(0))
    packed = np.zeros(layout.size, np.uint8)
    program = acting_program.CallProgram(network, layout).run
    return lowered(program, acting.prepared, state, jax.random.PRNGKey(0), packed)


@pytest.mark.extra
def test_acting_is_fit_for_a_gpu(acting: Acting) -> None:
    text = program_of_a_call(acting)

    assert unfit_for_a_gpu(text) == []
    picture, _, _ = products(text, "convolution")[0]
    assert picture == f"{SERVED_ENVS}x18x18x48x{SHORT[acting.dtype]}"


@pytest.mark.extra
def test_acting_takes_over_the_memory_of_its_tables(acting: Acting) -> None:
    num_params = len(jax.tree.leaves(acting.prepared))

    # Not that of parameters, key and input.
    assert donated(program_of_a_call(acting)) == [False] * num_params + [True] * 3 + [False] * 2


@pytest.mark.extra
def test_publishing_is_fit_for_a_gpu(acting: Acting) -> None:
    text = lowered(Publisher([], acting.network.prepare).copy_program, acting.params)

    assert unfit_for_a_gpu(text) == []
    # Nor does a GPU act by tables.
    assert not jax.tree.leaves(acting.prepared.tables)


@pytest.mark.extra
def test_initial_states_are_gathered_and_selected_on_a_gpu(acting: Acting) -> None:
    table = acting.network.initial_state(ACTING_ENVS + 1)
    rows = np.zeros(SERVED_ENVS, np.int32)
    sources = np.zeros(ACTING_ENVS + 1, np.int32)

    assert unfit_for_a_gpu(lowered(acting_program.gather_rows, table, rows)) == []
    assert unfit_for_a_gpu(lowered(batcher.select_rows, [table, table], sources)) == []


@pytest.mark.extra
def test_a_policy_that_is_evaluated_is_fit_for_a_gpu(acting: Acting) -> None:
    network = acting.network
    layout = call_layout(network)
    observation = layout.views(np.zeros(layout.size, np.uint8)).observation
    first = np.ones(SERVED_ENVS, np.uint8)
    policy = agent_policy.AgentPolicy("agent", network, acting.params)

    text = lowered(
        policy.apply, acting.params, observation, first, network.initial_state(SERVED_ENVS)
    )

    assert unfit_for_a_gpu(text) == []


class RewardTraining(NamedTuple):
    """A training of a reward on two devices, and its state's shapes."""

    task: RewardTask
    trainer: OfflineTrainer
    data: reward_data.RewardData
    params: Any
    parallel: DataParallel
    dtype: str

    def placed(self, steps: int | None = None) -> Any:
        """The batches of the first steps, by default of a chunk, on the devices."""
        batches = jax.tree.map(
            lambda leaf: leaf[:steps], self.task.batches(0, self.task.chunk_steps)
        )
        return self.parallel.put_batch(batches, reward_data.axes(batches))


@pytest.fixture(
    scope="module",
    params=[(inputs, dtype) for inputs in REWARDS for dtype in ("float32", "bfloat16")],
    ids="-".join,
)
def reward_training(
    gpu: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> RewardTraining:
    inputs, dtype = request.param
    folder = tmp_path_factory.mktemp("dataset")
    make_dataset(folder, pairs=300, glyphs=inputs == "everything")
    network = RewardNetworkSizes(**REWARDS[inputs], dtype=dtype)
    config = dataclasses.replace(read_section(RewardConfig, reward_config(folder)), network=network)
    data = reward_data.load(config)
    parallel = DataParallel(jax.devices()[:DEVICES])
    task = RewardTask(config, data, parallel)
    params = jax.eval_shape(
        lambda: ensembles.init_state(task.network, task.optimizer, jax.random.key(0))
    )
    return RewardTraining(task, OfflineTrainer(task, config), data, params, parallel, dtype)


def chunk_program(training: RewardTraining) -> tuple[str, Carry]:
    """The program of a chunk of steps, and the state that it gets."""
    state = Carry(training.params, np.int32(0), training.data.messages)
    return lowered(training.trainer.train, state, training.placed()), state


@pytest.mark.extra
def test_a_gpu_trains_a_reward_by_chunks_of_steps(reward_training: RewardTraining) -> None:
    assert reward_training.trainer.steps_per_call is None
    assert len(reward_training.task.batches(0, reward_training.task.chunk_steps).unique) > 1


@pytest.mark.extra
def test_steps_of_a_reward_are_fit_for_a_gpu(reward_training: RewardTraining) -> None:
    text, state = chunk_program(reward_training)

    assert unfit_for_a_gpu(text) == []
    convolutions = products(text, "convolution")
    assert len(convolutions) >= 3 * 6
    short = SHORT[reward_training.dtype]
    assert all(kind.endswith(f"x{short}") for types in convolutions for kind in types)
    # The memory of the state is used again, and that of the batches is not.
    num_state = len(jax.tree.leaves(state))
    is_donated = donated(text)
    assert is_donated == [True] * num_state + [False] * (len(is_donated) - num_state)


@pytest.mark.extra
def test_evaluating_a_reward_is_fit_for_a_gpu(reward_training: RewardTraining) -> None:
    shared = (reward_training.params.params, reward_training.data.messages)

    text = lowered(reward_training.task.rewards_of_steps, shared, reward_training.placed(steps=1))

    assert unfit_for_a_gpu(text) == []


@pytest.mark.extra
@pytest.mark.parametrize(
    "reward_training",
    [("message", "float32"), ("message", "bfloat16")],
    indirect=True,
    ids="-".join,
)
def test_rewards_of_messages_are_fit_for_a_gpu(reward_training: RewardTraining) -> None:
    architecture = reward_training.task.network.architecture
    params = reward_training.params.params
    messages = reward_training.parallel.put_batch(np.zeros((1024, 256), np.uint8), 0)

    assert (
        unfit_for_a_gpu(lowered(reward_training.task.rewards_of_messages, params, messages)) == []
    )
    # Looked up on a GPU where JAX_PLATFORMS leaves the CPU out.
    lookup = reward_model.message_program(architecture, 1, None)
    assert unfit_for_a_gpu(lowered(lookup, params, np.zeros((8, 256), np.uint8))) == []
