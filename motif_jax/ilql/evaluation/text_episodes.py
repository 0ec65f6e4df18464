"""Seeded episodes of a text task, many at a time: in each turn all running episodes act, then all environments answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from motif_jax.core import seeds
from motif_jax.core.interruption import Interruption
from motif_jax.ilql.agent.agent_decoder import AgentDecoder
from motif_jax.ilql.agent.decoding import Decoding, TokenFacts
from motif_jax.ilql.agent.text_programs import Actions
from motif_jax.ilql.agent.text_session import TextSession
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.items import TextTokenizer, tokenise
from motif_jax.ilql.dialogues.token_rewards import constant
from motif_jax.ilql.tasks.contract import TextEnvironment, TextPolicy, TextTask

# Texts that have ended are left out when no more than this share still runs: each size is a program of its own.
_NARROW = 0.5
_SMALLEST = 16
_FOLD = jax.vmap(jax.random.fold_in)
# A key for each of (episode, turn).
_KEYS = jax.jit(
    lambda key, episodes, turns: _FOLD(jax.vmap(jax.random.fold_in, (None, 0))(key, episodes), turns)
)


@dataclasses.dataclass(frozen=True)
class TextAction:
    """An action.

    Attributes:
      tokens, facts: as they were written, int32 [M], and their `TokenFacts`; None of a policy that writes none.
      divergence: from the policy, nats.
    """

    text: str
    tokens: Any = None
    facts: Any = None
    divergence: float = 0.0


class Spoken(NamedTuple):
    """A dialogue as an agent of a task sees it."""

    dialogue: Dialogue

    def to_sequence(self) -> Dialogue:
        return self.dialogue


class TextActor(Protocol):
    """Who speaks in several episodes at once."""

    def begin(self, episodes: Sequence[int]) -> None:
        """Starts anew, with these episodes."""

    def act(self, observations: Sequence[Any], places: Sequence[int]) -> list[TextAction]:
        """What is said in each of the episodes at `places` (of those of `begin`), which stand at `observations`."""


class PolicyTextActor:
    """A policy of the task, one episode after the other; each has its own generator."""

    def __init__(self, policy: TextPolicy, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._rngs: list[np.random.Generator] = []

    def begin(self, episodes: Sequence[int]) -> None:
        self._rngs = [seeds.rng(self._seed, "evaluate_text", "policy", episode) for episode in episodes]

    def act(self, observations: Sequence[Any], places: Sequence[int]) -> list[TextAction]:
        pairs = zip(observations, places, strict=True)
        return [TextAction(self._policy.act(observation, self._rngs[place])) for observation, place in pairs]


class ActionTokens:
    """A task's tokenizer that also encodes what an agent said that is no text of the task, such as a delimiter within an action."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer, self._said = tokenizer, dict[str, list[int]]()
        self.size, self.delimiters = tokenizer.size, tokenizer.delimiters

    def encode(self, text: str) -> list[int]:
        try:
            return self._tokenizer.encode(text)
        except ValueError:
            if text not in self._said:
                raise
            return list(self._said[text])

    def decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens)

    def said(self, tokens: list[int]) -> str:
        text = self.decode(tokens).strip()
        try:
            self._tokenizer.encode(text)
        except ValueError:
            self._said[text] = tokens
        return text


class AgentTextActor:
    """An agent, all episodes in one program; an episode's draws do not depend on the other episodes.

    With `as_written` it reads its own actions as the tokens that it wrote, not as the tokenizer's tokens of their texts.
    """

    def __init__(
        self,
        decoder: AgentDecoder,
        params: Any,
        tokenizer: TextTokenizer,
        decoding: Decoding,
        seed: int,
        as_written: bool = False,
    ) -> None:
        self._decoder, self._params = decoder, jax.device_put(params)
        self._tokenizer, self._decoding = ActionTokens(tokenizer), decoding
        self._key = jax.random.key(seeds.derive(seed, "evaluate_text", "agent") % (1 << 31))
        self._reward, self._as_written = constant(0.0), as_written

    def begin(self, episodes: Sequence[int]) -> None:
        # The program's size is a power of two, or few programs would ever fit again.
        self._rows, count = 1 << (len(episodes) - 1).bit_length(), len(episodes)
        marks = self._tokenizer.delimiters
        self._session = TextSession(self._decoder, self._params, self._rows, self._decoding, marks)
        self._episodes, self._turns = np.array(episodes, np.int32), np.zeros(count, np.int32)
        self._seats = {place: place for place in range(count)}  # an episode's row in the session
        self._written: list[list[np.ndarray]] = [[] for _ in episodes]

    def act(self, observations: Sequence[Any], places: Sequence[int]) -> list[TextAction]:
        self._narrow(places)
        said = np.array([self._seats[place] for place in places])
        texts = list(self._session.texts)
        for seat, place, observation in zip(said.tolist(), places, observations, strict=True):
            written = self._written[place] if self._as_written else None
            item = tokenise(observation.to_sequence(), self._tokenizer, self._reward, written)
            texts[seat] = item.tokens.tolist()
        self._session.read(texts)
        rows = np.zeros(self._rows, bool)
        rows[said] = True
        episodes, turns = np.zeros(self._rows, np.int32), np.zeros(self._rows, np.int32)
        episodes[said], turns[said] = self._episodes[list(places)], self._turns[list(places)]
        self._turns[list(places)] += 1
        actions = self._session.write(_KEYS(self._key, episodes, turns), rows)
        found = [self._said(actions, seat) for seat in said.tolist()]
        for place, action in zip(places, found, strict=True):
            self._written[place].append(action.tokens)
        return found

    def _said(self, written: Actions, seat: int) -> TextAction:
        valid = written.valid[seat]
        tokens = written.tokens[seat][valid]
        words = tokens[:-1] if len(tokens) and tokens[-1] == self._tokenizer.delimiters.action_end else tokens
        facts = TokenFacts(*(fact[seat][valid] for fact in written.facts))
        text = self._tokenizer.said(words.tolist())
        return TextAction(text, tokens, facts, float(written.divergence[seat]))

    def _narrow(self, places: Sequence[int]) -> None:
        size = max(min(_SMALLEST, self._rows), 1 << (len(places) - 1).bit_length())
        if size <= _NARROW * self._rows:
            kept = [self._seats[place] for place in places]
            self._session.pick([*kept, *[kept[0]] * (size - len(kept))])
            self._seats, self._rows = {place: seat for seat, place in enumerate(places)}, size


@dataclasses.dataclass(frozen=True)
class PlayedText:
    """A whole episode."""

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
    """Plays episodes and yields each when it ends; episode i depends on its seed alone, not on the other episodes.

    Args:
      threads: environments that answer at a time; for those that wait for a server.

    Raises:
      UserError: an environment cannot go on.
    """
    environments = [task.environment() for _ in range(min(lanes, len(episodes)))]
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(episodes), lanes):
            wave = list(episodes[start : start + lanes])
            yield from _wave(wave, environments, actor, seed, pool.map if threads > 1 else map, stop)
            if stop is not None and stop.requested:
                return


def _wave(
    episodes: Sequence[int],
    environments: Sequence[TextEnvironment],
    actor: TextActor,
    seed: int,
    each: Callable[..., Iterable[Any]],
    stop: Interruption | None,
) -> Iterator[PlayedText]:
    def reset(place: int) -> Any:
        return environments[place].reset(np.random.default_rng(environment_seed(seed, episodes[place])))

    def step(place: int, action: TextAction) -> Any:
        return environments[place].step(action.text)

    actor.begin(episodes)
    places = list(range(len(episodes)))
    observations = list(each(reset, places))
    actions: list[list[TextAction]] = [[] for _ in episodes]
    while places and not (stop is not None and stop.requested):
        said = actor.act([observations[place] for place in places], places)
        going = []
        for place, action, outcome in zip(places, said, each(step, places, said), strict=True):
            actions[place].append(action)
            observations[place] = outcome.observation
            if outcome.terminal:
                dialogue = outcome.observation.to_sequence()
                yield PlayedText(episodes[place], dialogue, tuple(actions[place]))
            else:
                going.append(place)
        places = going
