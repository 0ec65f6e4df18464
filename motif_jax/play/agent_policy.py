"""Loads a checkpoint of an agent run as a policy that episodes can be played with."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core import digests, run_folder
from motif_jax.core.checkpoints import Checkpoints, read_id
from motif_jax.core.compat import Compat
from motif_jax.core.config import is_natural
from motif_jax.core.errors import UserError
from motif_jax.core.training import finite
from motif_jax.core.training.run_files import default_step
from motif_jax.core.training.task import key_of
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import agent_checkpoints, agent_networks, reward_choice, settings
from motif_jax.rl.algorithms import appo
from motif_jax.rl.algorithms.config import Appo
from motif_jax.rl.config import AgentConfig, agent_config

_CLONE = "clone_behaviour"  # its runs are agents too
_CLONE_METRIC = "validation_loss"
# Switches of `config.compat` that make rows of a batch depend on each other. They are part of
# training alone: an action that is played depends on its own environment.
_BATCH_SWITCHES = ("symbolic_train_mode_batchnorm", "glam_untrained_dropout")


class AgentPolicy:
    """A network with parameters, as `policies.BatchPolicy`.

    Attributes:
      apply: the compiled step (params, fields by name [B, ...], first uint8 [B], state) -> (outputs
          of the policy [B, A], values [B], state).
    """

    in_workers = False

    def __init__(self, name: str, network: PolicyNetwork, params: Any) -> None:
        self.name = name
        self._network = network
        # Once; arrays of numpy would be sent to the device at every step.
        self.params = jax.device_put(params)
        self.apply = jax.jit(functools.partial(_act, network))

    def initial_state(self, batch_size: int) -> Any:
        return self._network.initial_state(batch_size)

    def act(
        self, observation: Mapping[str, np.ndarray], first: np.ndarray, state: Any
    ) -> tuple[np.ndarray, np.ndarray, Any]:
        """See `policies.BatchPolicy.act`."""
        # A language agent's prompts are cut to the longest of the batch before they are sent.
        fields = self._network.cropped({name: observation[name] for name in self._network.fields})
        outputs, values, state = self.apply(self.params, fields, first, state)
        return np.asarray(outputs), np.asarray(values), state


def _act(
    network: PolicyNetwork,
    params: Any,
    observation: dict[str, jax.Array],
    first: jax.Array,
    state: Any,
) -> tuple[jax.Array, jax.Array, Any]:
    # The network reads [T, B, ...]; an episode is played one step at a time.
    rows = jax.tree.map(lambda field: field[None], observation)
    outputs, values, state = network.apply(params, rows, state, jnp.expand_dims(first, 0))
    return outputs[0], values[0], state


def read_config(folder: str | Path) -> AgentConfig:
    """The config of an agent run, with the reward's evaluation that it learns from, and without
    switches of training alone.

    Raises UserError for another folder.
    """
    config = run_folder.read_config(folder)
    if config.get("stage") == _CLONE:
        # A clone imitates and has no reward: its config has no such section.
        config["reward"] = {"dir": None, "step": None, "intrinsic_coefficient": 0.0}
    elif config.get("stage") != "train_agent":
        raise UserError(f"{folder} is a run of {config.get('stage')}: give one of train_agent")
    config["compat"] |= dict.fromkeys(_BATCH_SWITCHES, False)
    if config["reward"]["dir"]:
        step = reward_choice.stored_step(folder)
        if step is not None:
            config["reward"]["step"] = step
    _find_files(config["network"], folder)
    return agent_config(config)


def _find_files(network: dict[str, Any], folder: str | Path) -> None:
    """Puts the paths of the files that a run in `folder` names relative to where it was started;
    names of the hub, and paths that lead to a file here, stay.
    """
    for key in ("model", "tokenizer"):
        named = network.get(key)
        if not named or Path(named).exists():
            continue
        path = run_folder.stored_path(folder, named)
        if path is not None:
            network[key] = str(path)


def environment_of(config: AgentConfig) -> tuple[str, dict[str, Any]]:
    """Name and options of the environment of a training.

    `compat.seed_noop` is left out: episodes that are evaluated or shown always have seeds.
    """
    options = settings.environment_options(config)
    switches = {
        key: True for key, on in options.pop("compat", {}).items() if on and key != "seed_noop"
    }
    return config.environment.name, {**options, "compat": switches} if switches else options


def rounded_threshold(compat: Compat) -> bool | None:
    """Whether the threshold is the published two-decimal number; None: the agent's reward run
    decides.
    """
    return compat.quantile_two_decimals or None


def choose_step(checkpoints: Checkpoints, checkpoint: str, folder: str | Path) -> int:
    """The step that 'latest', 'best' or a number means; UserError where there is no such
    checkpoint.

    0 is the agent before its first update, with a checkpoint or without.
    A clone's 'latest' is the evaluation that its summary.json names; with early stopping this is
    the best so far, which is logged.
    """
    if is_natural(checkpoint):
        number = int(checkpoint)
        return number if number == 0 else checkpoints.require_saved(number)
    if checkpoint not in ("latest", "best"):
        raise UserError(
            f"there is no checkpoint {checkpoint!r} of {folder}: must be latest, best or a step"
        )
    config = run_folder.read_config(folder)
    if checkpoint == "best":
        step = checkpoints.best()
    elif config.get("stage") == _CLONE:
        step = default_step(checkpoints, config)
    else:
        step = checkpoints.latest()
    if step is None:
        raise UserError(
            f"{folder} has no {checkpoint} checkpoint yet: train for longer, or choose another folder"
        )
    return step


def find_step(folder: str | Path, checkpoint: str) -> int:
    """`choose_step` of the checkpoints of an agent run."""
    with open_checkpoints(folder) as checkpoints:
        return choose_step(checkpoints, checkpoint, folder)


def identity(folder: str | Path, step: int) -> str | None:
    """What tells an agent's checkpoint from one of another training: its random id; of an unsaved 0
    the digest of the files that it is made of, None without files.
    """
    saved_id = read_id(Path(folder) / agent_checkpoints.FOLDER, step)
    if saved_id is not None or step != 0:
        return saved_id
    config = read_config(folder)
    kind = agent_networks.class_of(config)
    files = {**kind.file_digests(config), **kind.start_digests(config)}
    return digests.of_bytes(json.dumps(files, sort_keys=True).encode()) if files else None


def open_checkpoints(folder: str | Path) -> Checkpoints:
    """Opens the checkpoints of an agent run for reading; the best has the highest return, a clone's
    best the least held-out loss.
    """
    saved = Path(folder) / agent_checkpoints.FOLDER
    if run_folder.read_config(folder).get("stage") == _CLONE:
        return Checkpoints(saved, keep_best=_CLONE_METRIC, best_mode="min", read_only=True)
    return Checkpoints(saved, keep_best=agent_checkpoints.BEST_METRIC, read_only=True)


def load(
    folder: str | Path,
    checkpoint: str = "latest",
    environment: str | None = None,
    environment_options: Mapping[str, Any] | None = None,
) -> tuple[AgentPolicy, int]:
    """Returns the policy of an agent run and the step of its checkpoint.

    Args:
      checkpoint: 'latest', 'best', or a step; 0 is the agent as it was before its first update.
      environment: replaces the training's task; it must show the same fields.
      environment_options: of `environment`; None: those of the training, as far as it takes them.

    Raises:
      UserError: no agent run, no such checkpoint, one that is not finite, or one that does not fit
          the environment.
    """
    config = read_config(folder)
    trained_on, options = environment_of(config)
    played_on = environment or trained_on
    if environment_options is None:
        environment_options = catalogue.options_elsewhere(options, trained_on, played_on)
    spec = registry.spec(played_on, **environment_options)
    trained = registry.spec(trained_on, **options)
    if (spec.num_actions, spec.action_size) != (trained.num_actions, trained.action_size):
        raise UserError(
            f"{folder} plays {trained_on} with {_kind_of_actions(trained)}, {environment} has {_kind_of_actions(spec)}: choose an "
            "environment with the agent's actions"
        )
    network = agent_networks.class_of(config).make(config, spec)
    params, step = restore(folder, checkpoint, network)
    return AgentPolicy(f"{folder} at step {step}", network, params), step


def _kind_of_actions(spec: EnvironmentSpec) -> str:
    return (
        f"actions of {spec.action_size} numbers"
        if spec.action_size
        else f"{spec.num_actions} actions"
    )


def restore(folder: str | Path, checkpoint: str, network: PolicyNetwork) -> tuple[Any, int]:
    """The parameters of `network`, frozen ones too, of an agent run, and the checkpoint's step.

    Raises UserError as `load`, or if it was learned with another tokenizer or base model.
    """
    with open_checkpoints(folder) as checkpoints:
        step = choose_step(checkpoints, checkpoint, folder)
        # Where the start was not saved, the training's seed gives its parameters again.
        if step == 0 and 0 not in checkpoints.steps():
            _refuse_other_start(checkpoints, folder)
            params = network.init(_key_of_start(folder))
        else:
            before = agent_checkpoints.learned_with(checkpoints, step)
            config = read_config(folder)
            agent_networks.refuse_changed(config, before, str(folder))
            params = agent_checkpoints.restore_params(checkpoints, step, network)
            params = _in_units_of_reward(config, params, checkpoints, step)
        # What is never trained lies in no checkpoint.
        frozen = network.frozen()
        if not finite.all_finite(params):
            others = (
                ", ".join(str(other) for other in checkpoints.steps() if other != step) or "none"
            )
            raise UserError(
                f"{folder} at step {step} has parameters that are not finite, its training had diverged: choose another "
                f"checkpoint (there are {others}), or train again with a smaller learning rate"
            )
    return ({**params, **frozen} if frozen else params), step


def _in_units_of_reward(
    config: AgentConfig, params: Any, checkpoints: Checkpoints, step: int
) -> Any:
    """Parameters whose values are in units of reward, as those of actors; APPO's value head may
    predict standardised targets.
    """
    algorithm = config.algorithm
    if not isinstance(algorithm, Appo) or algorithm.value_normalisation == "none":
        return params
    learner = agent_checkpoints.restore_learner(checkpoints, step)
    return appo.in_units_of_reward(params, appo.ValueStatistics(**learner["value_statistics"]))


def _refuse_other_start(checkpoints: Checkpoints, folder: str | Path) -> None:
    """Raises UserError where the files of the first parameters have changed since the training, as
    its newest checkpoint says.
    """
    newest = checkpoints.latest()
    if newest is None:
        return
    learned_with = agent_checkpoints.learned_with(checkpoints, newest)
    started_from = agent_checkpoints.started_from(checkpoints, newest)
    agent_networks.refuse_changed(read_config(folder), learned_with, str(folder), started_from)


def _key_of_start(folder: str | Path) -> jax.Array:
    """The key from which the training in `folder` drew its first parameters."""
    seed = read_config(folder).seed
    if run_folder.read_config(folder).get("stage") == _CLONE:
        return key_of(seed, "parameters")
    # As the training's learner splits it.
    return jax.random.split(settings.random_key(seed, "learner"))[0]
