"""Seeded episodes of a text task, many at a time: in each turn all running episodes act, then all
environments answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from motif_jax.core import seeds
from motif_jax.core.interruption import Interruption
from motif_jax.ilql.agent.decoding import Decoding, TokenFacts
from motif_jax.ilql.agent.text_session import Actions, AgentDecoder, TextSession
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import (
    NO_TOKENS,
    TextTokenizer,
    constant_reward,
    system_start_of,
    to_act,
    tokenise,
    turns_of,
)
from motif_jax.ilql.tasks.contract import TextEnvironment, TextPolicy, TextTask

# Texts that have ended are left out when no more than this share still runs: each size is a program
# of its own.
_NARROW = 0.5
# No session is made smaller than this.
_SMALLEST = 16


@jax.jit
def _keys(key: jax.Array, episodes: jax.Array, turns: jax.Array) -> jax.Array:
    """A key for each pair of episode and turn, int32 [B] each."""
    of_episodes = jax.vmap(jax.random.fold_in, (None, 0))(key, episodes)
    return jax.vmap(jax.random.fold_in)(of_episodes, turns)


@dataclasses.dataclass(frozen=True)
class TextAction:
    """An action.

    Attributes:
      tokens, facts: as they were written, int32 [M], and their `TokenFacts`; None of a policy that
          writes none.
      divergence: from the policy, nats.
    """

    text: str
    tokens: Any = None
    facts: Any = None
    divergence: float = 0.0


class DialogueObservation(NamedTuple):
    """A dialogue as the observation of an agent."""

    dialogue: Dialogue

    def to_sequence(self) -> Dialogue:
        return self.dialogue


class TextActor(Protocol):
    """An agent or a policy that plays several episodes at once."""

    def begin(self, episodes: Sequence[int]) -> None:
        """Starts again, with these episodes."""

    def act(self, observations: Sequence[Any], indices: Sequence[int]) -> list[TextAction]:
        """The actions at `observations` of some episodes: those at `indices` in the sequence of
        `begin`.
        """


class PolicyTextActor:
    """A policy of the task, one episode after the other; each has its own generator."""

    def __init__(self, policy: TextPolicy, seed: int) -> None:
        self._policy = policy
        self._seed = seed
        self._rngs: list[np.random.Generator] = []

    def begin(self, episodes: Sequence[int]) -> None:
        self._rngs = [
            seeds.rng(self._seed, "evaluate_text", "policy", episode) for episode in episodes
        ]

    def act(self, observations: Sequence[Any], indices: Sequence[int]) -> list[TextAction]:
        actions = []
        for observation, index in zip(observations, indices, strict=True):
            actions.append(TextAction(self._policy.act(observation, self._rngs[index])))
        return actions


class ActionTokens:
    """A task's tokenizer that also encodes an agent's actions that are not a text of the task, such
    as one with a delimiter inside.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._foreign: dict[str, list[int]] = {}
        self.size = tokenizer.size
        self.delimiters = tokenizer.delimiters
        self.turns = turns_of(tokenizer)
        self.system_start = system_start_of(tokenizer)

    def encode(self, text: str) -> list[int]:
        try:
            return self._tokenizer.encode(text)
        except NO_TOKENS:
            # Texts of the environment have to fit the task's tokens, unlike an agent's.
            if text not in self._foreign:
                raise
            return list(self._foreign[text])

    def decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens)

    def decode_action(self, tokens: list[int]) -> str:
        """The text of an action, which `encode` accepts from then on."""
        text = self.decode(tokens).strip()
        try:
            self._tokenizer.encode(text)
        except NO_TOKENS:
            self._foreign[text] = tokens
        return text


class AgentTextActor:
    """An agent, all episodes in one program; an episode's draws do not depend on the other
    episodes.
    """

    def __init__(
        self,
        decoder: AgentDecoder,
        params: Any,
        tokenizer: TextTokenizer,
        decoding: Decoding,
        seed: int,
    ) -> None:
        self._decoder = decoder
        self._params = jax.device_put(params)
        self._tokenizer = ActionTokens(tokenizer)
        self._decoding = decoding
        self._key = jax.random.key(seeds.derive(seed, "evaluate_text", "agent") % (1 << 31))
        self._token_reward = constant_reward(0.0)

    def begin(self, episodes: Sequence[int]) -> None:
        # A power of two, so that few programs are compiled.
        self._batch = 1 << (len(episodes) - 1).bit_length()
        self._session = TextSession(
            self._decoder, self._params, self._batch, self._decoding, self._tokenizer.delimiters
        )
        self._episodes = np.array(episodes, np.int32)
        self._turns = np.zeros(len(episodes), np.int32)
        # an episode's row in the session
        self._row_of = {index: index for index in range(len(episodes))}

    def act(self, observations: Sequence[Any], indices: Sequence[int]) -> list[TextAction]:
        indices = list(indices)
        self._narrow(indices)
        rows = [self._row_of[index] for index in indices]

        # Rows of other episodes keep their texts.
        texts = list(self._session.texts)
        for row, observation in zip(rows, observations, strict=True):
            dialogue = observation.to_sequence()
            item = tokenise(dialogue, self._tokenizer, self._token_reward)
            texts[row] = [*item.tokens.tolist(), *to_act(dialogue, self._tokenizer)]
        self._session.read(texts)

        # Draws are by episode and turn, so that they do not depend on the row or on the other rows.
        acts = np.zeros(self._batch, bool)
        episodes = np.zeros(self._batch, np.int32)
        turns = np.zeros(self._batch, np.int32)
        acts[rows] = True
        episodes[rows] = self._episodes[indices]
        turns[rows] = self._turns[indices]
        self._turns[indices] += 1
        written_rows = self._session.write(_keys(self._key, episodes, turns), acts)

        return [self._action(written_rows, row) for row in rows]

    def _action(self, written: Actions, row: int) -> TextAction:
        valid = written.valid[row]
        tokens = written.tokens[row][valid]
        words = tokens.tolist()
        if words and words[-1] == self._tokenizer.delimiters.action_end:
            # The end is no part of the text; an action that was cut has none.
            words.pop()
        facts = TokenFacts(*(numbers[row][valid] for numbers in written.facts))
        text = self._tokenizer.decode_action(words)
        return TextAction(text, tokens, facts, float(written.divergence[row]))

    def _narrow(self, indices: Sequence[int]) -> None:
        """Leaves out the rows of ended episodes where that halves the session at least."""
        size = max(min(_SMALLEST, self._batch), 1 << (len(indices) - 1).bit_length())
        if size > _NARROW * self._batch:
            return
        rows = [self._row_of[index] for index in indices]
        # Copies of a row, which no episode reads.
        padding = [rows[0]] * (size - len(rows))
        self._session.pick([*rows, *padding])
        self._row_of = {index: row for row, index in enumerate(indices)}
        self._batch = size


@dataclasses.dataclass(frozen=True)
class PlayedText:
    """An episode that has ended."""

    index: int
    dialogue: Dialogue
    actions: tuple[TextAction, ...]


def environment_seed(seed: int, index: int) -> int:
    """The seed of an episode's environment."""
    return seeds.derive(seed, "evaluate_text", "environment", index)


def play(
    task: TextTask,
    actor: TextActor,
    seed: int,
    episodes: Sequence[int],
    lanes: int,
    threads: int = 1,
    stop: Interruption | None = None,
) -> Iterator[PlayedText]:
    """Plays episodes and yields each when it ends; episode i depends on its seed alone, not on the
    other episodes.

    Args:
      threads: environments that answer at a time; for those that wait for a server.

    Raises:
      UserError: an environment cannot go on.
    """
    # Used again by every wave: `reset` begins an episode anew.
    environments = [task.environment() for _ in range(min(lanes, len(episodes)))]
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(episodes), lanes):
            wave = list(episodes[start : start + lanes])
            yield from _wave(
                wave, environments, actor, seed, pool.map if threads > 1 else map, stop
            )
            if stop is not None and stop.requested:
                return


def _wave(
    episodes: Sequence[int],
    environments: Sequence[TextEnvironment],
    actor: TextActor,
    seed: int,
    map_over: Callable[..., Iterable[Any]],
    stop: Interruption | None,
) -> Iterator[PlayedText]:
    """Plays `episodes` side by side, one in each environment, to their ends; `map_over` is `map`,
    or that of a pool of threads.
    """

    def reset(index: int) -> Any:
        return environments[index].reset(
            np.random.default_rng(environment_seed(seed, episodes[index]))
        )

    def step(index: int, action: TextAction) -> Any:
        return environments[index].step(action.text)

    actor.begin(episodes)
    running = list(range(len(episodes)))
    # An environment is used by one thread at a time: each index is in `running` once.
    observations = list(map_over(reset, running))
    actions: list[list[TextAction]] = [[] for _ in episodes]
    while running and not (stop is not None and stop.requested):
        new_actions = actor.act([observations[index] for index in running], running)
        outcomes = map_over(step, running, new_actions)
        still_running = []
        for index, action, outcome in zip(running, new_actions, outcomes, strict=True):
            actions[index].append(action)
            observations[index] = outcome.observation
            if outcome.terminal:
                dialogue = outcome.observation.to_sequence()
                yield PlayedText(episodes[index], dialogue, tuple(actions[index]))
            else:
                still_running.append(index)
        running = still_running
