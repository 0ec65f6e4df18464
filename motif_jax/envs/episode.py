"""Plays whole episodes and records them: the one player of all stages.

`play` is the inner loop: an environment, a seed and a function that chooses actions. An
`EpisodePlayer` plays episodes of one environment and records what its caller asks for;
rl/actors/episodes.py runs it in processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from motif_jax.envs.spec import (
    RUNNING,
    Action,
    Environment,
    EnvironmentSpec,
    Row,
    empty_observation,
    row,
)

# Rows of the arrays for an episode's fields, doubled when one is longer: 5,000 steps and the last
# observation.
FIRST_CAPACITY = 5001

Observation = Mapping[str, np.ndarray]
# Observation -> action; StopIteration ends the episode early.
Choose = Callable[[Observation], Action]


class Transition(NamedTuple):
    """An observation of an episode, whose arrays the next step overwrites, and what led to it: no
    action to the first.
    """

    observation: Observation
    action: Action | None
    reward: float
    end: int


def fixed_actions(actions: np.ndarray) -> Choose:
    """A policy that plays `actions` ([n, ...], see `EnvironmentSpec.action`) in order, then raises
    StopIteration.
    """
    # As Python's numbers: `check_action` takes no float32 of numpy.
    remaining = iter(actions.tolist())
    return lambda _: next(remaining)


def random_actions(spec: EnvironmentSpec, seed: int) -> Choose:
    """A policy that plays each action that the environment allows with the same probability."""
    rng = np.random.default_rng(seed)

    def choose(observation: Observation) -> Action:
        if spec.action_size:
            return rng.uniform(-1, 1, spec.action_size).tolist()
        if spec.mask_field is None:
            return int(rng.integers(spec.num_actions))
        return int(rng.choice(np.flatnonzero(observation[spec.mask_field])))

    return choose


def play(
    environment: Environment,
    seed: int,
    choose: Choose,
    rows: Callable[[int], Observation] | None = None,
) -> Iterator[Transition]:
    """Yields the transitions of one episode until it ends or `choose` raises StopIteration.

    `rows` maps a step to the arrays for its observation; by default all steps share the same
    arrays.
    """
    shared = empty_observation(environment.spec) if rows is None else {}
    out = rows(0) if rows else shared
    environment.reset(seed, out)
    yield Transition(out, None, 0.0, RUNNING)

    end = RUNNING
    step = 0
    while end == RUNNING:
        try:
            action = choose(out)
        except StopIteration:
            return
        step += 1
        out = rows(step) if rows else shared
        reward, end = environment.step(action, out)
        yield Transition(out, action, reward, end)


@dataclass
class PlayedEpisode:
    """One played episode. Row t belongs to the observation on which action t was chosen.

    S = T, or T + 1 with the final observation where the environment's `last_text` says so, or where
    the actions ran out.

    Attributes:
      index: number of the episode in the list of seeds.
      actions: int32 [T], or n real numbers float32 [T, n].
      rewards: float32 [T], the task's, unscaled.
      end: 0 the actions ran out, 1 terminated, 2 truncated (the step limit).
      info: the environment's `episode_info()`.
      texts: uint8 [D, L], the distinct texts seen, None where the environment has no text field.
      text_index: int32 [S], row of `texts`.
      text_count: int32 [S], occurrences of that text in the episode, the present step included.
      fields: the observation fields that the player keeps, [S, ...] each.
      digest: of all observations, rewards and ends (`Digest`); None unless the player makes one.
      values: float32 [T], the policy's value estimate; None for policies that have none.
      log_probs: float32 [T], of the chosen actions under the policy; None without a network.
      probabilities: float32 [T, A], of all actions; None unless `keep_probabilities`.
    """

    index: int
    seed: int
    actions: np.ndarray
    rewards: np.ndarray
    end: int
    info: dict[str, float]
    texts: np.ndarray | None = None
    text_index: np.ndarray | None = None
    text_count: np.ndarray | None = None
    fields: dict[str, np.ndarray] = field(default_factory=dict)
    digest: str | None = None
    values: np.ndarray | None = None
    log_probs: np.ndarray | None = None
    probabilities: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.actions)


class Digest:
    """A running hash over an episode's rewards, ends and the observation fields `names`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, transition: Transition) -> None:
        for name in self._names:
            self._hash.update(transition.observation[name].tobytes())
        # `repr` writes a float with all its bits.
        self._hash.update(f"{transition.reward!r} {transition.end}".encode())

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class EpisodePlayer:
    """Plays episodes of `environment`, one after the other, and records each.

    Args:
      keep_fields: observation fields that are kept for every step.
      keep_texts: whether the texts are kept and counted, where the environment has them.
      digest_fields: names for a `Digest` of each episode (`recording.digest_fields`); None: without
          one.
    """

    def __init__(
        self,
        environment: Environment,
        keep_fields: Sequence[str] = (),
        keep_texts: bool = True,
        digest_fields: Sequence[str] | None = None,
    ) -> None:
        self.environment = environment
        self._spec = environment.spec
        self._text_field = self._spec.text_field if keep_texts else None
        self._digest_fields = digest_fields
        observation = self._spec.observation
        # The kept fields of all steps, which the next episode overwrites.
        self._fields = {
            name: np.zeros((FIRST_CAPACITY, *observation[name].shape), observation[name].dtype)
            for name in keep_fields
        }
        self._capacity = FIRST_CAPACITY
        # Fields that are not kept have the same arrays at all steps.
        self._shared = Row(empty_observation(self._spec))
        # Making the views of a row costs as much as a step of the game; the next episode writes
        # into the same rows.
        self._rows: list[Row] = []

    def play(self, seed: int, choose: Choose, index: int = 0) -> PlayedEpisode:
        """Plays one episode; its fields are views that the next episode overwrites."""
        for _ in self.transitions(seed, choose):
            pass
        return self.episode(index)

    def transitions(
        self, seed: int, choose: Choose, out: Observation | None = None
    ) -> Iterator[Transition]:
        """Yields the transitions of one episode, as `play`; `episode` has what was recorded so far.

        `out` are arrays of the caller into which all observations are written; None: the player's.
        """
        self._begin(seed)
        rows = self._row if out is None else lambda _: out
        for transition in play(self.environment, seed, choose, rows):
            self._steps += 1
            if out is not None and self._fields:
                self._copy(out)
            self._record(transition)
            yield transition

    def _begin(self, seed: int) -> None:
        self._seed = seed
        # Actions so far; the first observation has none.
        self._steps = -1
        self._end = RUNNING
        self._actions: list[Action] = []
        self._rewards: list[float] = []
        # Text -> its row in `PlayedEpisode.texts`, and how often each was seen.
        self._text_rows: dict[bytes, int] = {}
        self._counts: list[int] = []
        self._text_index: list[int] = []
        self._text_count: list[int] = []
        self._digest = None if self._digest_fields is None else Digest(self._digest_fields)

    def _row(self, step: int) -> Row:
        """The arrays into which the environment writes the observation of a step."""
        if not self._fields:
            return self._shared
        self._make_room(step)
        if step == len(self._rows):
            self._rows.append(self._views(step))
        return self._rows[step]

    def _copy(self, observation: Observation) -> None:
        self._make_room(self._steps)
        for name, array in self._fields.items():
            array[self._steps] = observation[name]

    def _make_room(self, step: int) -> None:
        """Doubles the arrays of the kept fields when they are full."""
        if step < self._capacity:
            return
        self._capacity *= 2
        for name, array in self._fields.items():
            self._fields[name] = np.concatenate([array, np.zeros_like(array)])
        # The views of the old arrays would keep them alive, and lose what is written from now on.
        self._rows = [self._views(index) for index in range(len(self._rows))]

    def _views(self, step: int) -> Row:
        return Row({**self._shared, **row(self._fields, step)})

    def _record(self, transition: Transition) -> None:
        self._end = transition.end
        if transition.action is not None:
            self._actions.append(transition.action)
            self._rewards.append(transition.reward)
        if self._text_field is not None and (transition.end == RUNNING or self._spec.last_text):
            text = transition.observation[self._text_field].tobytes()
            index = self._text_rows.setdefault(text, len(self._text_rows))
            if index == len(self._counts):
                self._counts.append(0)
            self._counts[index] += 1
            self._text_index.append(index)
            self._text_count.append(self._counts[index])
        if self._digest is not None:
            self._digest.add(transition)

    def episode(self, index: int = 0) -> PlayedEpisode:
        """The episode as far as it was played; its fields are views that the next episode
        overwrites.
        """
        has_last = self._end == RUNNING or self._spec.last_text
        num_rows = self._steps + 1 if has_last else self._steps
        episode = PlayedEpisode(
            index=index,
            seed=self._seed,
            actions=self._spec.action_array(self._actions),
            rewards=np.array(self._rewards, np.float32),
            end=self._end,
            info={name: float(value) for name, value in self.environment.episode_info().items()},
            fields={name: array[:num_rows] for name, array in self._fields.items()},
            digest=None if self._digest is None else self._digest.hexdigest(),
        )
        if self._text_field is not None:
            array = self._spec.observation[self._text_field]
            texts = np.frombuffer(b"".join(self._text_rows), array.dtype)
            episode.texts = texts.reshape(len(self._text_rows), *array.shape).copy()
            episode.text_index = np.array(self._text_index, np.int32)
            episode.text_count = np.array(self._text_count, np.int32)
        return episode

    def close(self) -> None:
        """Closes the environment."""
        self.environment.close()
