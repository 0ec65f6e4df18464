"""Actors, inference, batcher and learner of an agent's training put together, in threads or in one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import jax
from ml_collections import ConfigDict

from motif_jax import rewards
from motif_jax.actors.inline import InlineActors
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.rollouts import Rollouts
from motif_jax.algorithms import appo
from motif_jax.devices import hosts
from motif_jax.devices.meters import Meters
from motif_jax.devices.parallel import DataParallel
from motif_jax.devices.services import Services
from motif_jax.online import settings
from motif_jax.online.batcher import Batcher, DeviceBatch, Finished, IntrinsicReturn, Prefetcher, Source, put
from motif_jax.online.inference import Inference
from motif_jax.online.learner import Learner
from motif_jax.online.publishing import Publisher
from motif_jax.support import seeds

_GET_SECONDS = 0.2


class System:
    """Actors, inference and learner of one run, without its bookkeeping.

    Args:
      config: a resolved config.
      state: the training state to start from, None for a new one.
      next_episode: number of the next episode of every environment.
      draws: random draws of inference so far.
    """

    def __init__(
        self,
        config: ConfigDict,
        state: appo.TrainState | None = None,
        next_episode: Sequence[int] = (),
        draws: int = 0,
    ) -> None:
        self.config = config
        self.meters = Meters()
        self.network = settings.make_network(config)
        self.optimizer = settings.make_optimizer(config)
        spec = self.network.spec
        # None: as the reward run's own switch says.
        two_decimals = True if config.compat.quantile_two_decimals else None
        reward = rewards.load_intrinsic(config.reward, spec, two_decimals, settings.lookup_device(config))
        in_step = reward is not None and reward.lookup is None
        self.has_lookup = reward is not None and not in_step
        self._compile_reward = reward.compile if reward is not None else None
        if state is None:
            state = appo.make_state(self.network, self.optimizer, _key(config.seed, "learner"))
        if in_step:
            assert reward is not None
            state = state._replace(reward_params=reward.params)
        update = appo.make_update(
            self.network,
            self.optimizer,
            config,
            reward_fn=reward.in_step if reward is not None and in_step else None,
        )
        actor_devices = settings.actor_devices(config)
        self.parallel = DataParallel(settings.all_learner_devices(config))
        self.publisher = Publisher(actor_devices, self.network.prepare)
        self.learner = Learner(update, state, int(state.step), self.parallel, self.publisher, self.meters)
        self.sources = self._make_sources(actor_devices, next_episode, draws)
        self.batcher = Batcher(
            spec,
            self.sources,
            settings.columns(config),
            reward.lookup if reward is not None and self.has_lookup else None,
            config.reward.count_exponent,
            self.meters,
        )

    def _make_sources(
        self, devices: Sequence[jax.Device], next_episode: Sequence[int], draws: int
    ) -> list[Source]:
        sources = []
        kind = InlineActors if self.config.serial else ActorPool
        for number, (device, config) in enumerate(
            zip(devices, settings.actors_configs(self.config, len(devices)), strict=True)
        ):
            actors: Rollouts = kind(
                config, next_episode[config.first_env : config.first_env + config.num_envs]
            )
            # Every device of every host draws its own actions.
            device_number = hosts.place(self.config).index * len(devices) + number
            key = _key(self.config.seed, "inference", device_number)
            inference = Inference(self.network, actors, self.publisher, device, key, self.meters, draws)
            sources.append(Source(actors, inference))
        return sources

    def start(self) -> None:
        """Starts the actors, and compiles inference and the reward while they start.

        The learner's program is compiled when the first batch is there.
        """
        for source in self.sources:
            source.actors.start()
        for source in self.sources:
            source.inference.compile()
        if self._compile_reward is not None:
            self._compile_reward()

    def close(self) -> None:
        """Ends the actors."""
        for source in self.sources:
            source.actors.close()

    def next_episode(self) -> list[int]:
        """For every environment the number of the episode that it starts next."""
        return [number for source in self.sources for number in source.actors.next_episode()]

    @property
    def inference_threads(self) -> int:
        """How many threads choose actions: one for each device that acts, or the one that does everything in turns."""
        return 1 if self.config.serial else len(self.sources)

    def draws(self) -> int:
        """Random draws of inference so far (the most of any device)."""
        return max(source.inference.counter for source in self.sources)


class BatchStream:
    """Gives the learner its batches. With threads: inference and batcher run beside the caller.

    Args:
      system: what runs.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        config = system.config
        self._serial = config.serial
        self._services = Services()
        self._finished: deque[Finished] = deque()
        self._prefetcher = Prefetcher(
            system.batcher, system.parallel, config.max_waiting_batches, system.meters
        )
        for number, source in enumerate(system.sources):
            source.actors.on_finished = self._on_finished(number)

    def _on_finished(self, number: int) -> Any:
        take = self._finished.append if self._serial else self._prefetcher.add
        return lambda slot: take(Finished(number, slot))

    def __enter__(self) -> BatchStream:
        try:
            self._system.start()
        except BaseException:
            self._system.close()
            raise
        if not self._serial:
            for number, source in enumerate(self._system.sources):
                self._services.start(f"inference {number}", source.inference.serve)  # type: ignore[arg-type]
            self._services.start("batcher", self._prefetcher.work)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._services.stop()
        finally:
            self._system.close()

    def get(self) -> DeviceBatch | None:
        """The next batch, None if there is none yet.

        Raises:
          ServiceFailedError: a thread failed.
        """
        if self._serial:
            return self._get_serial()
        self._services.check()
        batch = self._prefetcher.get(0)
        if batch is None:
            self._system.learner.settle()  # with its own meter: the learner waits from here on
            with self._system.meters.time("learner/wait"):
                batch = self._prefetcher.get(_GET_SECONDS)
        return batch

    def _get_serial(self) -> DeviceBatch:
        system = self._system
        system.learner.settle()
        while True:
            while self._finished and not system.batcher.is_full():
                system.batcher.add(self._finished.popleft())
            batch = system.batcher.next()
            if batch is not None:
                return put(batch, system.parallel)
            for source in system.sources:
                source.inference.serve(0)

    def waiting(self) -> int:
        """Batches that wait for the learner."""
        return self._prefetcher.waiting()

    def rest(self) -> list[IntrinsicReturn]:
        """Takes the batches that wait, for a learner that has ended; gives the intrinsic returns of their episodes."""
        batches = [self._prefetcher.get(0) for _ in range(self._prefetcher.waiting())]
        return [value for batch in batches if batch is not None for value in batch.intrinsic_returns]


def _key(seed: int, *path: int | str) -> jax.Array:
    return jax.random.PRNGKey(seeds.derive(seed, *path) % (1 << 31))
