"""The agent's network: encoder, recurrent core, and heads for policy and value."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from motif_jax.core.errors import UserError
from motif_jax.envs.nethack.tiles import load_tiles
from motif_jax.envs.spec import MASKED, EnvironmentSpec
from motif_jax.nets import film, running_statistics, squashed_gaussian
from motif_jax.nets.config import GameNetwork
from motif_jax.nets.cores import Core, state_size
from motif_jax.nets.encoders import FlatEncoder, NetHackEncoder
from motif_jax.nets.image import ImageEncoder, TileSet
from motif_jax.nets.layers import Dense, Initializer, orthogonal_output_first, unit_rows
from motif_jax.nets.tile_embedding import MEMORY_SIZE, TileEmbeddingEncoder, UnderfootTrunk

Array = jax.Array
Params = Any
# Values of config.network.encoder.
AUTO = "auto"
NETHACK = "nethack"
FLAT = "flat"
FILM = "film"
TILES = "tiles"
UNDERFOOT = "tiles_underfoot"
# A value of config.network.observation_normalisation.
RUNNING = "running"
# Steps of a rollout in one turn of a GPU's loop, which costs more than a step's arithmetic.
_GPU_UNROLL = 4
# Fields that the NetHack encoders read.
NETHACK_FIELDS = ("window_chars", "window_colors", "blstats", "message")


class Prepared(NamedTuple):
    """Parameters in the dtypes in which `apply` reads them, and arrays derived from them; see
    `AgentNetwork.prepare`.
    """

    params: Params
    tables: Any


class Trunk(nn.Module):
    """Encoder and core: observation [T, B, ...] -> features [T, B, H] and the state [B, S] after
    row T-1.
    """

    encoder: nn.Module
    core: nn.Module

    def __call__(
        self, observation: Mapping[str, Array], state: Array, first: Array
    ) -> tuple[Array, Array]:
        length, batch = first.shape
        # Encoders see rows [T B, ...] without order; only the core knows time.
        rows = {name: x.reshape(length * batch, *x.shape[2:]) for name, x in observation.items()}
        # A batch norm needs to know which rows are of one step.
        steps = (length,) if isinstance(self.encoder, film.FilmEncoder) else ()
        features = self.encoder(rows, *steps)
        return self.core(features.reshape(length, batch, -1), state, first)


class ActorCritic(nn.Module):
    """A policy's outputs (logits, or moments of real numbers) and values over a rollout.

    Attributes:
      policy_size: width of the policy's head.
      actor: the trunk, shared by both heads if `critic` is None.
      critic: a separate trunk for the value, or None. With it the recurrent state is the actor's
          followed by the critic's.
      mask_field: the observation field that is 0 for invalid actions; their logits are `MASKED`.
      head_sizes: widths of the tanh layers before each head.
    """

    policy_size: int
    actor: nn.Module
    critic: nn.Module | None = None
    mask_field: str | None = None
    head_sizes: tuple[int, ...] = ()
    head_init: Initializer = orthogonal_output_first

    @nn.compact
    def __call__(
        self, observation: Mapping[str, Array], state: Array, first: Array
    ) -> tuple[Array, Array, Array]:
        """Returns logits or other outputs of the policy float32 [T, B, A], values float32 [T, B]
        and the state after row T-1.
        """
        if self.critic is None:
            policy_features, new_state = self.actor(observation, state, first)
            value_features = policy_features
        else:
            # Both trunks have the same sizes, and so halves of the state.
            actor_state, critic_state = jnp.split(state, 2, axis=-1)
            policy_features, new_actor_state = self.actor(observation, actor_state, first)
            value_features, new_critic_state = self.critic(observation, critic_state, first)
            new_state = jnp.concatenate([new_actor_state, new_critic_state], axis=-1)

        outputs = self._head(policy_features, self.policy_size, "policy")
        if self.mask_field is not None:
            outputs = jnp.where(observation[self.mask_field] != 0, outputs, MASKED)
        value = self._head(value_features, 1, "value")
        return outputs, value[..., 0], new_state

    def _head(self, x: Array, size: int, name: str) -> Array:
        # Logits and values decide losses, and are float32 whatever the trunk's dtype.
        x = x.astype(jnp.float32)
        for number, width in enumerate(self.head_sizes, start=1):
            x = jnp.tanh(Dense(width, start=self.head_init, name=f"{name}_fc{number}")(x))
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

    @property
    def _keeps_statistics(self) -> bool:
        encoder = getattr(self.module.actor, "encoder", None)
        has_scales = isinstance(encoder, FlatEncoder) and bool(encoder.scaled_fields)
        return has_scales or self._reads_instructions

    def cropped(self, observation: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Removes instruction padding that all rows share, for encoders that read words."""
        return film.cropped(observation) if self._reads_instructions else observation

    def with_input_statistics(self, params: Params, observation: Mapping[str, Array]) -> Params:
        """See `policy.with_input_statistics`: moves the statistics of what the encoder reads by
        rows [T, B, ...], where it keeps any.
        """
        if not self._keeps_statistics:
            return params
        # As one step of T B rows, over all of which a batch norm takes its statistics.
        rows = {
            name: observation[name].reshape(1, -1, *observation[name].shape[2:])
            for name in self.fields
        }
        count = math.prod(observation[self.fields[0]].shape[:2])
        first = jnp.zeros((1, count), bool)
        _, collections = self.module.apply(
            {"params": params},
            rows,
            self.initial_state(count),
            first,
            mutable=[running_statistics.STATISTICS],
        )
        return running_statistics.with_statistics(
            params, collections[running_statistics.STATISTICS]
        )

    def prepare(self, params: Params) -> Prepared:
        """Computes arrays that `apply` would derive from the parameters at every call; the result
        replaces the parameters there.
        """
        row = self._one_row()
        _, collections = self.module.apply({"params": params}, *row, mutable=["tables"])
        tables = collections.get("tables", {})

        def apply(params: Params) -> Any:
            return self.module.apply({"params": params, "tables": tables}, *row)

        return Prepared(cast_ahead(apply, params), tables)

    def _one_row(self) -> tuple[dict[str, Array], Array, Array]:
        """Zeros of the shapes of one row of one environment: observation, state, first."""
        read = {name: self.spec.observation[name] for name in self.fields}
        observation = {
            name: jnp.zeros((1, 1, *field.shape), field.dtype) for name, field in read.items()
        }
        return observation, self.initial_state(1), jnp.zeros((1, 1), bool)

    def apply(
        self,
        params: Params | Prepared,
        observation: Mapping[str, Array],
        state: Array,
        first: Array,
    ) -> tuple[Array, Array, Array]:
        """See `PolicyNetwork.apply`; the state is float32 [B, state_size], and other fields of the
        observation are ignored.
        """
        chex.assert_rank(first, 2)
        chex.assert_shape(state, (first.shape[1], self.state_size))
        read = {name: observation[name] for name in self.fields}
        chex.assert_tree_shape_prefix(read, first.shape)
        # The names of the fields of `Prepared` are those of flax's collections.
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
      UserError: another encoder than the flat one is to normalise observations, or the flat one has
        nothing to read.
    """
    kind = config.encoder
    if kind == AUTO:
        kind = NETHACK if all(field in spec.observation for field in NETHACK_FIELDS) else FLAT
    if config.observation_normalisation == RUNNING and kind != FLAT:
        raise UserError(
            f"config.network.observation_normalisation='running' needs the flat encoder, and encoder={kind!r} has scales of its own: "
            "use 'none'"
        )
    fields = _encoder_fields(kind, config, spec)

    actor = _make_trunk(kind, fields, config, spec, batch_statistics)
    critic = None
    size = state_size(config.core, config.hidden_size, config.core_layers)
    if kind == UNDERFOOT:
        size += MEMORY_SIZE
    if config.separate_critic:
        critic = _make_trunk(kind, fields, config, spec, batch_statistics)
        size *= 2
    # One of the two is 0.
    policy_size = spec.num_actions + squashed_gaussian.num_outputs(spec.action_size)
    module = ActorCritic(
        policy_size,
        actor,
        critic,
        spec.mask_field,
        head_sizes=tuple(config.head_sizes),
        head_init=unit_rows if kind == FILM else orthogonal_output_first,
    )

    # For the heads; encoders do not read it.
    if spec.mask_field is not None:
        fields = (*fields, spec.mask_field)
    return AgentNetwork(spec, fields, module, size)


def _encoder_fields(kind: str, config: GameNetwork, spec: EnvironmentSpec) -> tuple[str, ...]:
    """The observation fields that an encoder reads, in its order; UserError if there are none."""
    if kind == FLAT:
        # The count is for the reward, the mask for the heads.
        unread = {spec.count_field, spec.mask_field}
        if config.observation_normalisation != RUNNING:
            unread |= {name for name in spec.observation if spec.is_rest(name)}
        if not (spec.observed_text or config.read_text):
            unread.add(spec.text_field)
        # A field of no numbers, such as a Box of shape (0,), has nothing to read.
        unread |= {name for name, field in spec.observation.items() if 0 in field.shape}
        fields = tuple(sorted(set(spec.observation) - unread))
        if not fields:
            remedy = ": --config.network.read_text=True reads the text" if spec.text_field else ""
            raise UserError(
                f"config.environment.name: its observation has nothing that the network reads{remedy}"
            )
        return fields

    return film.FIELDS if kind == FILM else NETHACK_FIELDS


def _numbers(fields: tuple[str, ...], spec: EnvironmentSpec) -> tuple[str, ...]:
    """Those of `fields` that hold numbers of any size: no bytes, which are pictures, captions and
    one-hot values.
    """
    return tuple(name for name in fields if spec.observation[name].dtype != "uint8")


def _make_trunk(
    kind: str,
    fields: tuple[str, ...],
    config: GameNetwork,
    spec: EnvironmentSpec,
    batch_statistics: bool,
) -> nn.Module:
    """A new encoder and core; modules are cheap, parameters are made by `init`."""
    dtype = jnp.dtype(config.dtype)
    # A CPU keeps the plain forms, and with them its bits.
    backend = jax.default_backend()
    unroll = _GPU_UNROLL if backend == "gpu" else 1
    core = Core(config.core, config.hidden_size, config.core_layers, dtype, unroll, name="core")

    if kind == FILM:
        encoder = film.FilmEncoder(
            config.image_features, config.message_features, batch_statistics, dtype
        )
        return Trunk(encoder, core)
    if kind == FLAT:
        is_scaled = config.observation_normalisation == RUNNING
        fields = tuple(name for name in fields if not spec.is_rest(name))
        flat = FlatEncoder(
            fields,
            text_fields=tuple(name for name in fields if name == spec.text_field),
            image_fields=spec.image_fields,
            image_features=config.image_features,
            sizes=tuple(config.flat_sizes),
            nonlinearity=config.nonlinearity,
            scaled_fields=_numbers(fields, spec) if is_scaled else (),
            picture_normalisation=config.picture_normalisation,
            dtype=dtype,
        )
        return Trunk(flat, core)
    if kind in (TILES, UNDERFOOT):
        tiles = TileEmbeddingEncoder(
            config.image_features,
            config.vector_features,
            config.message_features,
            config.nonlinearity,
            dtype,
        )
        if kind == TILES:
            return Trunk(tiles, core)
        return UnderfootTrunk(tiles, core, config.vector_features)

    first_convolution = config.first_convolution
    if first_convolution == "auto":
        first_convolution = "table" if backend == "cpu" else "picture"
    image = ImageEncoder(
        TileSet(load_tiles()),
        config.image_encoder,
        config.image_features,
        config.obs_scale,
        config.nonlinearity,
        look_up=first_convolution == "table",
        blocks=backend == "gpu",
        dtype=dtype,
    )
    nethack = NetHackEncoder(
        image, config.vector_features, config.message_features, config.nonlinearity, dtype
    )
    return Trunk(nethack, core)


def rescale_value_head(
    params: Params, old: tuple[Array, Array], new: tuple[Array, Array]
) -> Params:
    """Rescales the value head so that its outputs, denormalised by `new`, equal its old outputs,
    denormalised by `old`.

    Both are (mean, standard deviation), scalars. Source: van Hasselt et al. 2016, equation 9.
    """
    old_mean, old_std = old
    new_mean, new_std = new
    head = params["value_head"]
    kernel = head["kernel"] * (old_std / new_std)
    bias = (old_std * head["bias"] + old_mean - new_mean) / new_std
    return {**params, "value_head": {"kernel": kernel, "bias": bias}}


def cast_ahead(function: Callable[..., Any], params: Params, *arguments: Any) -> Params:
    """Returns `params` with those leaves cast, once for many calls, that
    `function(params, *arguments)` only ever reads in one other dtype.

    The function's results stay the same, bit for bit, since it makes the same casts.
    """
    leaves, structure = jax.tree.flatten(params)
    program = jax.make_jaxpr(function)(params, *arguments).jaxpr

    # Variable of a leaf -> dtypes to which the program casts it; None: it reads the leaf in another
    # way.
    read_dtypes: dict[Any, set[Any]] = {
        variable: set() for variable in program.invars[: len(leaves)]
    }

    def record(values: Sequence[Any], dtype: Any) -> None:
        for value in values:
            # Literals cannot be hashed.
            if not isinstance(value, Literal) and value in read_dtypes:
                read_dtypes[value].add(dtype)

    for equation in program.eqns:
        is_cast = equation.primitive.name == "convert_element_type"
        record(equation.invars, equation.params["new_dtype"] if is_cast else None)
    record(program.outvars, None)

    cast = []
    for leaf, dtypes in zip(leaves, read_dtypes.values(), strict=True):
        if len(dtypes) == 1 and None not in dtypes:
            (dtype,) = dtypes
            leaf = leaf.astype(dtype)
        cast.append(leaf)
    return jax.tree.unflatten(structure, cast)
