"""What a training consists of: `build` makes the environment's spec, the network, the algorithm and
the reward that a config names; `System` the actors, inference, batcher and learner that work with
them.
"""

from __future__ import annotations

import functools
import queue
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from motif_jax.core.checkpoints import ANY
from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.sharding import Sharded
from motif_jax.core.interruption import never
from motif_jax.core.training import schedules
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import agent_checkpoints, agent_networks, intrinsic, reward_choice, settings
from motif_jax.rl.actors.cores import ThreadCores
from motif_jax.rl.actors.inline import InlineActors
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.actors.rollouts import Rollouts
from motif_jax.rl.agent_checkpoints import Snapshot
from motif_jax.rl.algorithms.algorithm import Algorithm
from motif_jax.rl.batcher import ActorSource, Batcher, BatchListener, Finished
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.inference import Inference, Placement, Publisher
from motif_jax.rl.intrinsic import RewardKind, RunSetup
from motif_jax.rl.learner import Learner
from motif_jax.rl.reward_keys import SENTENCE
from motif_jax.rl.reward_lookup import RewardLookup, SentenceLookup


class Parts(NamedTuple):
    """What a config names; the environment's spec is `network.spec`."""

    network: PolicyNetwork
    algorithm: Algorithm
    reward: RewardKind | None  # the intrinsic reward, None for none


def build(config: AgentConfig, workdir: Path | None = None) -> Parts:
    """Makes the parts that a resolved config names.

    Args:
      workdir: the run's folder; None where nothing is written.
    """
    network = settings.make_network(config)
    # None: the switch of the reward's own run decides.
    two_decimals = True if config.compat.quantile_two_decimals else None
    reward = intrinsic.load_intrinsic(
        config.reward,
        network.spec,
        two_decimals,
        settings.lookup_device(config.devices),
        None if workdir is None else RunSetup(config, workdir),
    )
    optimizer = schedules.make_optimizer(config.optimizer)
    reward_fn = None if reward is None else reward.in_step
    algorithm = settings.algorithm_class(config)(config, network, optimizer, reward_fn)
    return Parts(network, algorithm, reward)


class System:
    """Actors, inference, batcher and learner of one run; `batch_stream.BatchStream` lets them work.

    Args:
      snapshot: the checkpoint that the run resumes from; None for a new run.
      listener: called by the batcher's thread with every batch.
      workdir: the run's folder; None where nothing is written, as in benchmarks.

    Attributes:
      network, algorithm, reward: see `Parts`.
      has_lookup: whether the batcher computes it, not the update.
      sources: actors and inference of each acting device.
      finished: full slots that the batcher has not received yet.
      finished_slots: number of slots that each group of each source has filled.
    """

    def __init__(
        self,
        config: AgentConfig,
        snapshot: Snapshot | None = None,
        listener: BatchListener | None = None,
        workdir: Path | None = None,
    ) -> None:
        self.config = config
        if snapshot is not None:
            # A resumed run must have the files that it has learned with, before they are read.
            before = snapshot.progress.get(agent_checkpoints.FILE_DIGESTS, {})
            agent_networks.refuse_changed(config, before, f"--workdir={workdir}")
            reward_choice.refuse_changed(config, snapshot.progress, workdir)
        self.meters = Meters()
        # The reward before the state: a checkpoint's item of the reward is restored with it.
        self.network, self.algorithm, self.reward = build(config, workdir)
        self.has_lookup = self.reward is not None and self.reward.in_step is None

        self.parallel = agent_networks.make_parallel(
            config, settings.all_learner_devices(config.devices)
        )
        actor_devices: Sequence[Placement] = settings.actor_devices(config.devices)
        if isinstance(self.parallel, Sharded):
            # A network that is split acts where it lies: all its devices are one placement.
            actor_devices = [self.parallel.everywhere]
        # The learner publishes its first parameters here, with which inference then compiles.
        self.learner, self.publisher = self._make_learner(snapshot, actor_devices)

        self.finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        self.sources = self._make_sources(
            actor_devices, {} if snapshot is None else snapshot.progress
        )
        self.finished_slots = [[0] * source.actors.config.groups for source in self.sources]
        self.batcher = self._make_batcher(listener)
        self._thread_cores: ThreadCores | None = None

    def _make_batcher(self, listener: BatchListener | None) -> Batcher:
        config = self.config
        spec = self.network.spec
        lookup = None
        if self.reward is not None and self.has_lookup:
            kind = SentenceLookup if config.reward.by == SENTENCE else RewardLookup
            lookup = kind(
                spec,
                self.reward,
                config.reward.pay,
                config.reward.count_exponent,
                self.meters,
                self.learner.version,
            )
        # Several hosts must run the same program, so rows of one length.
        crop = self.network.cropped if config.hosts.count == 1 else None
        return Batcher(
            spec, self.sources, settings.columns(config), self.meters, lookup, listener, crop
        )

    def _make_state(self, snapshot: Snapshot | None) -> Any:
        """The training state, new or from `snapshot`, whose item of the reward is restored."""
        init = self.algorithm.init
        key = settings.random_key(self.config.seed, "learner")
        if snapshot is None:
            state = init(key)
        else:
            # Shapes alone, since the checkpoint has the values.
            state = agent_checkpoints.take_learner(snapshot, jax.eval_shape(init, key))
            # No checkpoint holds the reference: the seed gives the same first parameters again.
            if jax.tree.leaves(getattr(state, "reference", ())):
                state = state._replace(reference=init(key).reference)
            if self.reward is not None and self.reward.keeps_state:
                item = agent_checkpoints.REWARD
                self.reward.restore(snapshot.take({item: ANY})[item])
            snapshot.require_all_taken()
        if self.reward is not None and self.reward.in_step is not None:
            state = state._replace(reward_params=self.reward.params)
        frozen = self.network.frozen()
        if frozen:
            state = state._replace(frozen=frozen)
        return state

    def _make_learner(
        self, snapshot: Snapshot | None, actor_devices: Sequence[Placement]
    ) -> tuple[Learner, Publisher]:
        """The learner, and the publisher that gives its parameters to the acting devices."""
        state = self._make_state(snapshot)
        frozen = getattr(state, "frozen", ()) or {}
        # The learner's copy of frozen parameters suffices where only its first device acts, or the
        # devices of a split model.
        learners_act = isinstance(self.parallel, Sharded) or actor_devices == [
            self.parallel.local_devices[0]
        ]
        shares_frozen = bool(frozen) and learners_act and settings.takes_turns(self.config)
        publisher = Publisher(actor_devices, self.algorithm.acting, {} if shares_frozen else frozen)
        learner = Learner(
            self.algorithm, state, self.parallel, publisher, self.meters, shares_frozen
        )
        return learner, publisher

    def network_params(self) -> Any:
        """All parameters of the learner's network: the trained ones, and the frozen ones if there
        are any.
        """
        state = self.learner.state
        frozen = getattr(state, "frozen", ())
        return {**state.params, **frozen} if frozen else state.params

    def _make_sources(
        self, devices: Sequence[Placement], progress: Mapping[str, Any]
    ) -> list[ActorSource]:
        sources = []
        kind = InlineActors if self.config.serial else ActorPool
        # Neither episodes nor draws of the run before it was resumed are repeated.
        next_episode = progress.get("next_episode", [])
        draws = progress.get("draws", 0)
        configs = settings.actors_configs(self.config, len(devices))
        for number, (device, config) in enumerate(zip(devices, configs, strict=True)):
            episodes = next_episode[config.first_env : config.first_env + config.num_envs]
            actors: Rollouts = kind(config, episodes, functools.partial(self._finish, number))
            # Every device of every host draws actions of its own.
            device_number = (self.config.hosts.index or 0) * len(devices) + number
            key = settings.random_key(self.config.seed, "inference", device_number)
            inference = Inference(
                self.network, actors, self.publisher, device, key, self.meters, draws
            )
            sources.append(ActorSource(actors, inference))
        return sources

    def _finish(self, source: int, slot: int) -> None:
        """Takes a full slot of an actor."""
        # In the thread of inference, by `Rollouts.ready`.
        self.finished_slots[source][self.sources[source].actors.group_of(slot)] += 1
        self.finished.put(Finished(source, slot))

    def next_episode(self) -> list[int]:
        """The number of the episode that each environment of this host starts next."""
        return [number for source in self.sources for number in source.actors.next_episode()]

    def items(self) -> dict[str, Any]:
        """The checkpoint's items of all parts."""
        items = agent_checkpoints.items_of_learner(self.learner.state)
        if self.reward is not None and self.reward.keeps_state:
            items[agent_checkpoints.REWARD] = self.reward.state()
        return items

    def start(self, stopped: Callable[[], bool] = never) -> None:
        """Starts the actors while inference and the reward compile. Raises StoppedError: `stopped`
        returned True meanwhile.
        """
        for source in self.sources:
            source.actors.start(stopped)
        for source in self.sources:
            source.inference.compile()
        if self.reward is not None:
            self.reward.stopped = stopped
            self.reward.start()

    def keep_off_the_actors(self) -> None:
        """Moves this process's threads off the actors' cores, where it acts and learns beside a
        GPU.

        To be called after the first update: until then programs are compiled, for which all cores
        are used.
        """
        if not settings.acts_beside_a_gpu(self.config):
            return
        actor_cores = {core for source in self.sources for core in source.actors.config.cores or ()}
        self._thread_cores = ThreadCores(actor_cores)
        if self._thread_cores.ids:
            shown = ",".join(map(str, self._thread_cores.ids))
            line = f"inference, batcher, learner and XLA keep to the cores {shown}, off those of the actors"
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._thread_cores is not None:
            self._thread_cores.close()
        for source in self.sources:
            source.actors.close()
        if self.reward is not None:
            self.reward.close()

    @property
    def inference_threads(self) -> int:
        """Threads that choose actions: one for each acting device, or one for everything."""
        return 1 if settings.takes_turns(self.config) else len(self.sources)
