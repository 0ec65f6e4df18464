"""A trained agent as a policy.

from motif_jax import agents

agent = agents.load("runs/agent")
env = agent.make_env()
observation, info = env.reset(seed=0)
state, ended = None, False
while not ended:
    action, state = agent.act(observation, state)
    observation, reward, terminated, truncated, info = env.step(action)
    ended = terminated or truncated
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from motif_jax.core import entry_points, hub, seeds
from motif_jax.core.config import default_workers
from motif_jax.core.devices import jax_options
from motif_jax.core.errors import UserError
from motif_jax.envs.episode import PlayedEpisode
from motif_jax.envs.spec import ArraySpec
from motif_jax.play.evaluation_setup import EvalSetup, of_folder, open_setup
from motif_jax.rl.actors.episodes import PlaySettings, play_episodes
from motif_jax.rl.actors.policies import choose_actions, log_softmax, masked


class State(NamedTuple):
    """An agent's memory between two observations, and its values and probabilities of the last one.

    Attributes:
      memory: the network's recurrent state.
      values: float32 [N], estimated return of the last observations; a number for a single
          environment.
      probabilities: float32 [N, A] of all actions, or [A] for a single environment; None where
          actions are real numbers.
    """

    memory: Any
    values: Any
    probabilities: np.ndarray | None


class Agent:
    """The policy of one checkpoint. Made by `load`.

    Attributes:
      folder: the run folder.
      checkpoint: environment step of the checkpoint.
      environment, options: of the training.
      spec: the environment's observations and actions.

    Raises:
      UserError: no agent plays in the setup.
    """

    def __init__(self, folder: str | Path, setup: EvalSetup, seed: int) -> None:
        if setup.checkpoint is None:
            raise UserError(
                f"{folder}: no agent of a run plays here; motif_jax.agents.load(DIR) makes one"
            )
        self.folder = Path(folder)
        self.checkpoint = setup.checkpoint
        self.environment = setup.environment
        self.options = setup.options
        self.spec = setup.spec
        self._policy = setup.policy
        self._rng = seeds.rng(seed, "agents.act")

    def __repr__(self) -> str:
        return f"Agent({str(self.folder)!r}, checkpoint={self.checkpoint}, environment={self.environment!r})"

    def make_env(self, render_mode: str | None = None) -> gymnasium.Env:
        """The environment that the agent was trained in, or that `load` was asked for, in
        gymnasium's form.
        """
        from motif_jax.envs.gymnasium_env import RegisteredEnv

        return RegisteredEnv(self.environment, render_mode, **self.options)

    @jax_options.defaults()
    def act(
        self,
        observations: Mapping[str, np.ndarray],
        state: State | None = None,
        *,
        first: Any = None,
        greedy: bool = False,
    ) -> tuple[Any, State]:
        """Chooses an action for one environment, or one for each of several.

        Args:
          observations: the fields of `spec.observation`, each [...] of a single environment or
            [N, ...]; other fields are ignored.
          state: the state that the last call returned; None where episodes begin.
          first: bool or bool [N], True where an episode begins, which resets the memory. None:
            everywhere if `state` is None, else nowhere.
          greedy: the most likely action, of real numbers the median; else it is drawn.

        Returns:
          The action, an int (int32 [N]) or real numbers from -1 to 1 (float32 [n], or [N, n]), and
          the state for the next call, with values and probabilities.

        Raises:
          UserError: a field is missing, has another shape, or numbers that its type cannot hold;
            `first` has another shape; or the number of environments changed.
        """
        batch, single = self._batch(observations)
        size = len(next(iter(batch.values())))
        memory = self._policy.initial_state(size) if state is None else state.memory
        begins = np.asarray(state is None if first is None else first, bool)
        if begins.shape not in ((), (size,)):
            raise UserError(
                f"first has shape {list(begins.shape)}: must be True or False, or one of them for each of {size} environments"
            )
        begins = np.broadcast_to(begins, (size,))
        if state is not None and np.size(state.values) != size:
            raise UserError(
                f"the observation is of {size} environments, the state of {np.size(state.values)}: begin with state=None"
            )
        outputs, values, memory = self._policy.act(batch, begins, memory)
        outputs = masked(outputs, batch, self.spec)
        # From the agent's own generator: a caller's environments have no seeds here.
        actions, _ = choose_actions(outputs, self._rng.random(size), greedy, self.spec)
        probabilities = None
        if not self.spec.action_size:
            probabilities = np.exp(log_softmax(outputs)).astype(np.float32)
        if not single:
            return actions, State(memory, values, probabilities)
        action = actions[0] if self.spec.action_size else int(actions[0])
        return action, State(
            memory, float(values[0]), None if probabilities is None else probabilities[0]
        )

    def _batch(self, observations: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], bool]:
        """The fields that the agent reads, [N, ...], and whether they came from a single
        environment.
        """
        kinds: set[bool] = set()
        batch: dict[str, np.ndarray] = {}
        for name, field in self.spec.observation.items():
            if name not in observations:
                raise UserError(
                    f"the observation has no field {name!r}: {self.folder} was trained on {self.environment}; "
                    "agent.make_env() shows what it reads"
                )
            array = np.asarray(observations[name])
            # Every field has to say the same, one environment or several.
            alone = array.shape == field.shape
            kinds.add(alone)
            if len(kinds) > 1 or not (alone or array.shape[1:] == field.shape):
                raise UserError(
                    f"the field {name!r} has shape {list(array.shape)}: {list(field.shape)} of one environment, or "
                    f"[N, ...] of several, expected for all fields alike"
                )
            fitting = _fitting(name, array, field)
            batch[name] = fitting[None] if alone else fitting
        sizes = {name: len(array) for name, array in batch.items()}
        if 0 in sizes.values():
            raise UserError("the observation is of 0 environments: give those of one at least")
        if len(set(sizes.values())) > 1:
            raise UserError(
                f"the fields of the observation are of different numbers of environments: {sizes}"
            )
        return batch, True in kinds


def _fitting(name: str, array: np.ndarray, field: ArraySpec) -> np.ndarray:
    """`array` in the type of its field. Raises UserError where that changes a number, such as a
    picture's from 0 to 1, or one is not finite.
    """
    dtype = np.dtype(field.dtype)
    is_number = array.dtype.kind in "biuf"
    with np.errstate(invalid="ignore", over="ignore"):
        fitting = array.astype(dtype, copy=False) if is_number else array
    may_change = dtype.kind != "f" and array.dtype != dtype
    keeps_numbers = is_number and not (may_change and (fitting != array).any())
    if not keeps_numbers or not np.isfinite(fitting).all():
        raise UserError(
            f"the field {name!r} has numbers that are not finite or do not fit {dtype}, or no numbers ({array.dtype}): "
            "agent.make_env() shows what the agent reads"
        )
    return fitting


@jax_options.defaults()
def load(
    folder: str | Path,
    checkpoint: str | int = "latest",
    environment: str | None = None,
    seed: int = 0,
    trust: Iterable[str] = (),
) -> Agent:
    """Reads an agent.

    Args:
      folder: run folder of `train_agent` (also by configs/oni.py and
          configs/train_language_agent.py), or hf://OWNER/NAME.
      checkpoint: 'latest', 'best', or a step.
      environment: played instead of the training's task; it must show the same fields.
      seed: of the actions that `Agent.act` draws.
      trust: 'module:Class' of each part outside the package that the folder may import, which runs
          its code.

    Raises:
      UserError: the folder is not an agent run, has no such checkpoint, does not fit the
          environment, or names a class that is not trusted.
    """
    return Agent(*_open(folder, checkpoint, environment, trust), seed)


def _open(
    folder: str | Path, checkpoint: str | int, environment: str | None, trust: Iterable[str]
) -> tuple[str | Path, EvalSetup]:
    """The local folder, and the setup of agent and environment; arguments and errors as of
    `load`.
    """
    entry_points.trust(trust)
    # What the caller names is trusted, other than names in the folder's files.
    entry_points.trust(entry_points.named(environment))
    folder = hub.local(folder)
    if any((Path(folder) / name).is_file() for name in ("agent.json", "agent/agent.json")):
        raise UserError(
            f"{folder} is an agent of train_text: open it with motif_jax.text_agents.load"
        )
    # Without its reward, which may lie elsewhere: nothing is rated here.
    return folder, open_setup(of_folder(folder, str(checkpoint), environment, reward=False))


@jax_options.defaults()
def play(
    folder: str | Path,
    episodes: int,
    *,
    seed: int = 0,
    checkpoint: str | int = "latest",
    environment: str | None = None,
    greedy: bool = False,
    workers: int | None = None,
    keep_fields: Sequence[str] = (),
    trust: Iterable[str] = (),
) -> Iterator[PlayedEpisode]:
    """Plays whole seeded episodes on all cores and yields each as it ends, in no particular order.

    They are the episodes that `evaluate` plays with the same seed. Worker processes are spawned: a
    script that calls this at its top level needs `if __name__ == "__main__":` around it. They end
    with the iterator: exhaust it or close it.

    Args:
      folder: as in `load`.
      checkpoint: as in `load`.
      environment: as in `load`.
      trust: as in `load`.
      episodes: how many.
      seed: of the episodes' seeds.
      greedy: the most likely actions, of real numbers the medians; else they are drawn, by the
          episode's seed.
      workers: processes that step environments; None: one a core but one, or but two beside a GPU.
      keep_fields: observation fields that the records keep for every step.

    Yields:
      `PlayedEpisode`: index, seed, actions [T], rewards [T], end, info, texts, values [T],
          log_probs [T], fields.

    Raises:
      UserError: as in `load`, or a number or field that cannot be.
    """
    workers = default_workers() if workers is None else workers
    for name, number, minimum in (("episodes", episodes, 0), ("workers", workers, 1)):
        if number < minimum:
            raise UserError(f"{name}={number}: must be at least {minimum}")
    _, setup = _open(folder, checkpoint, environment, trust)
    # Here, as a worker would fail at its first episode only.
    unknown = sorted(set(keep_fields) - set(setup.spec.observation))
    if unknown:
        fields = ", ".join(sorted(setup.spec.observation))
        raise UserError(
            f"keep_fields: {setup.environment} has no {', '.join(unknown)}: it has {fields}"
        )
    play_settings = PlaySettings(workers, keep_fields=tuple(keep_fields), greedy=greedy)
    # The seeds of `evaluate`, whose games these are.
    episode_seeds = [seeds.derive(seed, "evaluate", index) for index in range(episodes)]
    return jax_options.each(
        play_episodes(setup.environment, setup.options, episode_seeds, setup.policy, play_settings)
    )
