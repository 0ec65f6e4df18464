"""What the agent's tests share: configs, networks, inputs for the real one."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from motif_jax.core.training import schedules
from motif_jax.envs.nethack.status import BLSTATS_SCALE
from motif_jax.envs.nethack.tiles import load_tiles
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.nets.agent import AgentNetwork, make_agent_network
from motif_jax.nets.config import GameNetwork
from motif_jax.rl.algorithms.appo import AppoTrainState, first_statistics
from motif_jax.rl.algorithms.config import Appo
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentConfig, AgentReward

NETHACK_SPEC = EnvironmentSpec(
    {
        "window_chars": ArraySpec((12, 12), "uint8"),
        "window_colors": ArraySpec((12, 12), "uint8"),
        "blstats": ArraySpec((27,), "int32"),
        "message": ArraySpec((256,), "uint8"),
        "message_count": ArraySpec((), "int32"),
    },
    num_actions=23,
    text_field="message",
    count_field="message_count",
)
FLAT_SPEC = EnvironmentSpec(
    {"signal": ArraySpec((5,), "float32"), "clock": ArraySpec((), "int32")}, num_actions=3
)


def appo_config(**algorithm: Any) -> AgentConfig:
    """The published settings with both rewards; keyword arguments are values of
    `config.algorithm`.
    """
    appo = Appo(**{"value_statistics_rate": 0.01, **algorithm})
    reward = AgentReward(extrinsic_scale=1.0, extrinsic_coefficient=0.1)
    return AgentConfig(algorithm=appo, train_for_env_steps=10_000, reward=reward)


def nethack_network(**network: Any) -> AgentNetwork:
    """The network of NetHack, published sizes but for the keyword arguments."""
    return make_agent_network(GameNetwork(**network), NETHACK_SPEC)


def flat_network(**network: Any) -> AgentNetwork:
    """A small network of an environment without any NetHack field."""
    return make_agent_network(
        GameNetwork(**{"hidden_size": 16, "flat_sizes": (32,), **network}), FLAT_SPEC
    )


def random_params(network: AgentNetwork, seed: int = 0) -> Any:
    """Parameters of about unit gain, without the cost of compiling the real initialisation."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(network.init, jax.random.key(0))

    def drawn(x: Any) -> jax.Array:
        return jnp.asarray(
            rng.standard_normal(x.shape) / np.sqrt(np.prod(x.shape[:-1], initial=1) + 1), x.dtype
        )

    return jax.tree.map(drawn, shapes)


def train_state(
    params: Any, optimizer: optax.GradientTransformation, step: int = 0
) -> AppoTrainState:
    """The state of a training with these parameters."""
    counts = jnp.int32(step), schedules.no_steps()
    statistics = first_statistics()
    return AppoTrainState(params, optimizer.init(params), *counts, jax.random.key(0), statistics)


@functools.cache
def _tile_numbers() -> dict[bytes, int]:
    tiles = load_tiles().reshape(-1, 6 * 6 * 3)
    return {tile.tobytes(): number for number, tile in enumerate(tiles)}


def observation_of(
    image: np.ndarray, features: np.ndarray, message: np.ndarray, count: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Raw fields whose pictures [..., 3, 72, 72], features and messages are the golden ones;
    leading axes are kept.
    """
    cells = image.reshape(-1, 3, 12, 6, 12, 6).transpose(0, 2, 4, 3, 5, 1).reshape(-1, 6 * 6 * 3)
    tiles = np.array([_tile_numbers()[cell.tobytes()] for cell in cells]).reshape(
        *image.shape[:-3], 12, 12
    )
    scale = np.where(BLSTATS_SCALE > 0, BLSTATS_SCALE.astype(np.float64), np.inf)
    count = np.ones(message.shape[:-1]) if count is None else count
    return {
        "window_chars": (tiles // 16).astype(np.uint8),
        "window_colors": (tiles % 16).astype(np.uint8),
        "blstats": np.round(features / scale).astype(np.int32),
        "message": message,
        "message_count": count.astype(np.int32),
    }


def time_major(x: np.ndarray) -> np.ndarray:
    """[N, T, ...] -> [T, N, ...]."""
    return np.swapaxes(x, 0, 1)


def random_batch(
    spec: EnvironmentSpec,
    state_size: int,
    length: int,
    rollouts: int,
    seed: int,
    padding: float = 0.0,
) -> TrajectoryBatch:
    """A batch of random numbers with episode ends of all kinds and a share of padded rows."""
    rng = np.random.default_rng(seed)
    observation = {}
    for name, field in spec.observation.items():
        draw = (
            rng.standard_normal
            if np.dtype(field.dtype).kind == "f"
            else functools.partial(rng.integers, 1, 16)
        )
        observation[name] = draw(size=(length + 1, rollouts, *field.shape)).astype(field.dtype)
    ends = rng.random((length, rollouts)) < 0.2
    last = np.zeros((length + 1, rollouts), bool)
    for t in range(length):
        ends[t] &= ~last[t]
        last[t + 1] = ends[t]
    first = np.zeros((length + 1, rollouts), bool)
    first[1:] = last[:-1]
    truncated = ends & (rng.random(ends.shape) < 0.5)
    version = np.where(rng.random(ends.shape) < padding, -1, 0)

    def numbers(scale: float = 1.0) -> np.ndarray:
        return (scale * rng.standard_normal((length, rollouts))).astype(np.float32)

    return TrajectoryBatch(
        observation=observation,
        first=first,
        last=last,
        action=rng.integers(0, spec.num_actions, (length, rollouts)).astype(np.int32),
        behaviour_log_prob=-np.abs(numbers(0.3)) - np.float32(np.log(spec.num_actions)),
        behaviour_value=numbers(),
        parameter_version=version.astype(np.int32),
        reward=numbers(),
        intrinsic_reward=np.abs(numbers()),
        terminated=ends & ~truncated,
        truncated=truncated,
        initial_state=rng.standard_normal((rollouts, state_size)).astype(np.float32),
    )
