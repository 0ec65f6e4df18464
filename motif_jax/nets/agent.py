"""The agent's network: encoder, recurrent core, and heads for policy and value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.envs.nethack.tiles import load_tiles
from motif_jax.envs.spec import MASKED, EnvironmentSpec
from motif_jax.nets import film, underfoot
from motif_jax.nets.casts import cast_ahead
from motif_jax.nets.config import GameNetwork
from motif_jax.nets.cores import Core, state_size
from motif_jax.nets.encoders import FlatEncoder, NetHackEncoder
from motif_jax.nets.image import ImageEncoder
from motif_jax.nets.layers import Dense, Initializer, orthogonal_output_first, unit_rows
from motif_jax.nets.tile_embedding import TileEmbeddingEncoder
from motif_jax.nets.tiles import TileSet

Array = jax.Array
Params = Any
AUTO, NETHACK, FLAT, FILM = "auto", "nethack", "flat", "film"
TILES, UNDERFOOT = "tiles", "tiles_underfoot"
_GPU_UNROLL = 4  # steps of a rollout in one turn of a GPU's loop, which costs more than a step's arithmetic
NETHACK_FIELDS = ("window_chars", "window_colors", "blstats", "message")


class Prepared(NamedTuple):
    """Parameters in the dtypes in which `apply` reads them, and arrays derived from them; see `AgentNetwork.prepare`."""

    params: Params
    tables: Any


class Trunk(nn.Module):
    """Encoder and core: observation [T, B, ...] -> features [T, B, H] and the state [B, S] after row T-1."""

    encoder: nn.Module
    core: nn.Module

    def __call__(self, observation: Mapping[str, Array], state: Array, first: Array) -> tuple[Array, Array]:
        length, batch = first.shape
        rows = {name: x.reshape(length * batch, *x.shape[2:]) for name, x in observation.items()}
        # A batch norm needs to know which rows are of one step.
        steps = (length,) if isinstance(self.encoder, film.FilmEncoder) else ()
        features = self.encoder(rows, *steps)
        return self.core(features.reshape(length, batch, -1), state, first)


class ActorCritic(nn.Module):
    """Logits and values over a rollout.

    Attributes:
      actor: the trunk, shared by both heads if `critic` is None.
      critic: a separate trunk for the value, or None. With it the recurrent state is the actor's followed by the critic's.
      mask_field: the observation field that is 0 for invalid actions; their logits are `MASKED`.
      head_sizes: widths of the tanh layers before each head.
    """

    num_actions: int
    actor: nn.Module
    critic: nn.Module | None = None
    mask_field: str | None = None
    head_sizes: tuple[int, ...] = ()
    head_init: Initializer = orthogonal_output_first

    @nn.compact
    def __call__(
        self, observation: Mapping[str, Array], state: Array, first: Array
    ) -> tuple[Array, Array, Array]:
        """Returns logits float32 [T, B, A], values float32 [T, B] and the state after row T-1."""
        if self.critic is None:
            policy_features, new_state = self.actor(observation, state, first)
            value_features = policy_features
        else:
            for_actor, for_critic = jnp.split(state, 2, axis=-1)
            policy_features, actor_state = self.actor(observation, for_actor, first)
            value_features, critic_state = self.critic(observation, for_critic, first)
            new_state = jnp.concatenate([actor_state, critic_state], axis=-1)
        logits = self._head(policy_features, self.num_actions, "policy")
        if self.mask_field is not None:
            logits = jnp.where(observation[self.mask_field] != 0, logits, MASKED)
        value = self._head(value_features, 1, "value")
        return logits, value[..., 0], new_state

    def _head(self, x: Array, size: int, name: str) -> Array:
        x = x.astype(jnp.float32)
        for i, width in enumerate(self.head_sizes, start=1):
            x = jnp.tanh(Dense(width, start=self.head_init, name=f"{name}_fc{i}")(x))
        return Dense(size, start=self.head_init, name=f"{name}_head")(x)


@dataclasses.dataclass(frozen=True)
class AgentNetwork:
    """An agent's network as pure functions; a `policy.PolicyNetwork`."""

    spec: EnvironmentSpec
    fields: tuple[str, ...]
    module: ActorCritic
    state_size: int

    def init(self, key: Array) -> Params:
        return jax.jit(self.module.init)(key, *self._one_row())["params"]

    def frozen(self) -> Mapping[str, Any]:
        return {}

    @property
    def _reads_instructions(self) -> bool:
        return isinstance(getattr(self.module.actor, "encoder", None), film.FilmEncoder)

    def cropped(self, observation: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Removes instruction padding that all rows share, for encoders that read words."""
        return film.cropped(observation) if self._reads_instructions else observation

    def tracked(self, params: Params, observation: Mapping[str, Array]) -> Params:
        """See `policy.tracked`: updates the batch norms of a `film` encoder by rows [T, B, ...]."""
        if not self._reads_instructions:
            return params
        rows = {name: observation[name].reshape(1, -1, *observation[name].shape[2:]) for name in self.fields}
        count = rows[film.IMAGE].shape[1]
        given = (rows, self.initial_state(count), jnp.zeros((1, count), bool))
        _, made = self.module.apply({"params": params}, *given, mutable=[film.STATISTICS])
        return film.seen(params, made[film.STATISTICS])

    def prepare(self, params: Params) -> Prepared:
        """Computes arrays that `apply` would derive from the parameters at every call; the result replaces the parameters there."""
        row = self._one_row()
        _, made = self.module.apply({"params": params}, *row, mutable=["tables"])
        tables = made.get("tables", {})

        def apply(params: Params) -> Any:
            return self.module.apply({"params": params, "tables": tables}, *row)

        return Prepared(cast_ahead(apply, params), tables)

    def _one_row(self) -> tuple[dict[str, Array], Array, Array]:
        read = {name: self.spec.observation[name] for name in self.fields}
        observation = {name: jnp.zeros((1, 1, *field.shape), field.dtype) for name, field in read.items()}
        return observation, self.initial_state(1), jnp.zeros((1, 1), bool)

    def apply(
        self, params: Params | Prepared, observation: Mapping[str, Array], state: Array, first: Array
    ) -> tuple[Array, Array, Array]:
        """See `PolicyNetwork.apply`; the state is float32 [B, state_size], and fields of the observation beside ours are ignored."""
        chex.assert_rank(first, 2)
        chex.assert_shape(state, (first.shape[1], self.state_size))
        read = {name: observation[name] for name in self.fields}
        chex.assert_tree_shape_prefix(read, first.shape)
        variables = params._asdict() if isinstance(params, Prepared) else {"params": params}
        return self.module.apply(variables, read, state, first)  # type: ignore[return-value]

    def initial_state(self, batch_size: int) -> Array:
        return jnp.zeros((batch_size, self.state_size), jnp.float32)


def make_agent_network(
    config: GameNetwork, spec: EnvironmentSpec, batch_statistics: bool = False
) -> AgentNetwork:
    """Builds the network of an environment from its section.

    `batch_statistics` is `of_batch` of a `film` encoder's `film.BatchNorm`.

    Raises:
      UserError: the environment lacks a field of the NetHack or BabyAI encoder.
    """
    dtype = jnp.dtype(config.dtype)
    kind = config.encoder
    if kind == AUTO:
        kind = NETHACK if all(field in spec.observation for field in NETHACK_FIELDS) else FLAT
    fields: tuple[str, ...] = {FLAT: (), FILM: film.FIELDS}.get(kind, NETHACK_FIELDS)
    missing = [field for field in fields if field not in spec.observation]
    if missing:
        raise UserError(
            f"config.network.encoder={kind!r} needs the fields {', '.join(missing)}, which the environment does "
            "not show: use 'auto' or 'flat'"
        )
    if kind == FLAT:
        unread = {spec.count_field, spec.mask_field}
        if not (spec.observed_text or config.read_text):
            unread.add(spec.text_field)
        fields = tuple(sorted(set(spec.observation) - unread))

    # A CPU keeps the plain forms, and with them its bits.
    on_gpu = jax.default_backend() == "gpu"
    unroll = _GPU_UNROLL if on_gpu else 1

    def trunk() -> nn.Module:
        core = Core(config.core, config.hidden_size, config.core_layers, dtype, unroll, name="core")
        if kind == FILM:
            widths = (config.image_features, config.message_features)
            return Trunk(film.FilmEncoder(*widths, batch_statistics, dtype), core)
        if kind == FLAT:
            text = tuple(name for name in fields if name == spec.text_field)
            images = (spec.image_fields, config.image_features)
            sizes = tuple(config.flat_sizes)
            return Trunk(FlatEncoder(fields, text, *images, sizes, config.nonlinearity, dtype), core)
        if kind in (TILES, UNDERFOOT):
            parts = (config.image_features, config.vector_features, config.message_features)
            tiles = TileEmbeddingEncoder(*parts, config.nonlinearity, dtype)
            if kind == TILES:
                return Trunk(tiles, core)
            return underfoot.UnderfootTrunk(tiles, core, config.vector_features)
        quicker = "table" if jax.default_backend() == "cpu" else "picture"
        look_up = {"auto": quicker}.get(config.first_convolution, config.first_convolution) == "table"
        how = (config.image_encoder, config.image_features, config.obs_scale, config.nonlinearity)
        image = ImageEncoder(TileSet(load_tiles()), *how, look_up, on_gpu, dtype)
        widths = (config.vector_features, config.message_features)
        return Trunk(NetHackEncoder(image, *widths, config.nonlinearity, dtype), core)

    size = state_size(config.core, config.hidden_size, config.core_layers)
    size += underfoot.MEMORY_SIZE if kind == UNDERFOOT else 0
    critic = trunk() if config.separate_critic else None
    heads = (tuple(config.head_sizes), unit_rows if kind == FILM else orthogonal_output_first)
    module = ActorCritic(spec.num_actions, trunk(), critic, spec.mask_field, *heads)
    if spec.mask_field is not None:
        fields = (*fields, spec.mask_field)
    return AgentNetwork(spec, fields, module, size * (2 if config.separate_critic else 1))


def rescale_value_head(params: Params, old: tuple[Array, Array], new: tuple[Array, Array]) -> Params:
    """Rescales the value head so that outputs denormalised by `new` (mean, standard deviation) equal the old ones by `old`.

    Source: van Hasselt et al. 2016, equation 9.
    """
    (old_mean, old_std), (new_mean, new_std) = old, new
    head = params["value_head"]
    kernel = head["kernel"] * (old_std / new_std)
    bias = (old_std * head["bias"] + old_mean - new_mean) / new_std
    return {**params, "value_head": {"kernel": kernel, "bias": bias}}
