"""Prompts of a language model: possible actions, goal, and the last observations and actions.

The format equals lamorel's and BabyAI-Text's to the blank, since pretrained agents and trajectories depend on it; see NOTICE.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from motif_jax.core import tokenizer_files
from motif_jax.core.errors import UserError
from motif_jax.envs.babyai_text.catalogue import ENGLISH, FRENCH

_HEADS = {ENGLISH: "Possible action of the agent:", FRENCH: "Actions possibles pour l'agent:"}
# Replaces the next observation once the goal is reached; no prompt has it.
REACHED = {ENGLISH: " \n The goal is reached.", FRENCH: " \n Le but est atteint."}
TOO_LONG = "config.network.prompt_tokens="  # start of the error for a longer prompt
_LINE = " \n "
GOALS = {ENGLISH: "Goal of the agent:", FRENCH: "But de l'agent:"}


class Window:
    """The newest `observations` observations of an episode and the actions between them, oldest first."""

    def __init__(self, observations: int) -> None:
        self._observations: collections.deque[Sequence[str]] = collections.deque(maxlen=observations)
        self._actions: collections.deque[str] = collections.deque(maxlen=observations - 1)

    def start(self, clauses: Sequence[str] | None) -> None:
        """Begins an episode with its first observation; None leaves it out."""
        self._observations.clear()
        self._actions.clear()
        if clauses is not None:
            self._observations.append(clauses)

    def add(self, action: str, clauses: Sequence[str]) -> None:
        """Adds an action and the observation after it; the oldest ones drop out."""
        self._actions.append(action)
        self._observations.append(clauses)

    def prompt(self, goal: str, actions: Sequence[str], language: str = ENGLISH) -> str:
        """The prompt up to the next action; `goal` is in `language`."""
        parts = [f"{_HEADS[language]} {', '.join(actions)}", f" \n {GOALS[language]} {goal}"]
        for number, clauses in enumerate(self._observations):
            parts += [observed(number, clauses), asked(number)]
            if number < len(self._actions):
                parts.append(self._actions[number])
        return "".join(parts)


def with_goal(prompt: str, goal: str) -> str:
    """An English prompt with another goal."""
    before, head, rest = prompt.partition(GOALS[ENGLISH])
    after = rest[rest.index(_LINE) :]
    return f"{before}{head} {goal}{after}"


def from_goal(observation: str) -> str:
    """The rest of an English observation from the goal on; no prompt has this form."""
    return f"{_LINE}Goal:\n{observation}"


def observed(number: int, clauses: Sequence[str]) -> str:
    """A prompt's text for one observation."""
    return "".join([f" \n Observation {number}: ", *(f"{clause}, " for clause in clauses)])


def asked(number: int) -> str:
    """A prompt's text before an action."""
    return f"\n Action {number}: "


@functools.lru_cache(maxsize=4)
def _backend(file: str, changed: int) -> Tokenizer:
    """One tokenizer for all environments of a process, since its cache grows to 60 MB."""
    del changed  # only a cache key: a changed file is read again
    return tokenizer_files.read(file)


class PromptTokens:
    """Tokenizes prompts of at most `length` tokens by a tokenizer.json; `special`: with its special tokens (T5's end token)."""

    def __init__(self, file: str, length: int, special: bool = True) -> None:
        self._backend = _backend(file, os.stat(file).st_mtime_ns)
        self._file = file
        self._length = length
        self._special = special

    def write(self, prompt: str, out: np.ndarray) -> None:
        """Writes the prompt's tokens into int32 [length], padded with -1. Raises UserError: the prompt has more."""
        with tokenizer_files.working(self._file):
            tokens = self._backend.encode(prompt, add_special_tokens=self._special).ids
        if len(tokens) > self._length:
            raise UserError(
                f"{TOO_LONG}{self._length}: a prompt has {len(tokens)} tokens: {prompt[:120]!r}..."
            )
        out[: len(tokens)] = tokens
        out[len(tokens) :] = -1
