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
        self._seen: collections.deque[Sequence[str]] = collections.deque(maxlen=observations)
        self._done: collections.deque[str] = collections.deque(maxlen=observations - 1)

    def start(self, clauses: Sequence[str] | None) -> None:
        """Begins an episode with its first observation; None leaves it out."""
        self._seen.clear()
        self._done.clear()
        if clauses is not None:
            self._seen.append(clauses)

    def add(self, action: str, clauses: Sequence[str]) -> None:
        self._done.append(action)
        self._seen.append(clauses)

    def prompt(self, goal: str, actions: Sequence[str], language: str = ENGLISH) -> str:
        """The prompt up to the next action; `goal` is in `language`."""
        parts = [f"{_HEADS[language]} {', '.join(actions)}", f" \n {GOALS[language]} {goal}"]
        for number, clauses in enumerate(self._seen):
            parts += [observed(number, clauses), asked(number)]
            if number < len(self._done):
                parts.append(self._done[number])
        return "".join(parts)


def with_goal(prompt: str, goal: str) -> str:
    """An English prompt with another goal."""
    before, here, rest = prompt.partition(GOALS[ENGLISH])
    return f"{before}{here} {goal}{rest[rest.index(_LINE) :]}"


def from_goal(seen: str) -> str:
    """The rest of an English observation from the goal on; no prompt has this form."""
    return f"{_LINE}Goal:\n{seen}"


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
    """Tokenizes prompts of at most `most` tokens by a tokenizer.json; `special`: with its special tokens (T5's end token)."""

    def __init__(self, file: str, most: int, special: bool = True) -> None:
        self._backend, self._file = _backend(file, os.stat(file).st_mtime_ns), file
        self._most, self._special = most, special

    def write(self, prompt: str, out: np.ndarray) -> None:
        """Writes the prompt's tokens into int32 [most], padded with -1. Raises UserError: the prompt has more."""
        with tokenizer_files.working(self._file):
            tokens = self._backend.encode(prompt, add_special_tokens=self._special).ids
        if len(tokens) > self._most:
            raise UserError(f"{TOO_LONG}{self._most}: a prompt has {len(tokens)} tokens: {prompt[:120]!r}...")
        out[: len(tokens)] = tokens
        out[len(tokens) :] = -1
