"""Prompts of a language model: possible actions, goal, and the last observations and actions.

The format equals lamorel's and BabyAI-Text's to the blank, since pretrained agents and trajectories
depend on it; see NOTICE.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tokenizers import Tokenizer

from motif_jax.core import joint_tokens, tokenizer_files
from motif_jax.core.errors import UserError
from motif_jax.envs.babyai_text.catalogue import ENGLISH, FRENCH
from motif_jax.envs.spec import ArraySpec

_HEADS = {ENGLISH: "Possible action of the agent:", FRENCH: "Actions possibles pour l'agent:"}
# Replaces the next observation once the goal is reached; no prompt has it.
REACHED = {ENGLISH: " \n The goal is reached.", FRENCH: " \n Le but est atteint."}
TOO_LONG_PREFIX = "config.network.prompt_tokens="  # of the error for a longer prompt
_LINE = " \n "
# Fields of the observation: a prompt, and its actions where they are tokenised together with it.
TOKENS = "tokens"
CANDIDATES = "candidates"
CANDIDATE_STARTS = "candidate_starts"
# Room for the end of a prompt in the tokens of its actions, where a tokenizer divides it otherwise
# before them.
_SPARE_TOKENS = 8
GOALS = {ENGLISH: "Goal of the agent:", FRENCH: "But de l'agent:"}


class Window:
    """The newest `observations` observations of an episode and the actions between them, oldest
    first.
    """

    def __init__(self, observations: int) -> None:
        self._observations: collections.deque[Sequence[str]] = collections.deque(
            maxlen=observations
        )
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

    def prompt(
        self,
        goal: str,
        actions: Sequence[str],
        language: str = ENGLISH,
        change: Callable[[str], str] | None = None,
    ) -> str:
        """The prompt up to the next action; `goal` is in `language`.

        `change` rewrites the goal and the observations. The names of actions stay: they are what
        the agent chooses among.
        """

        def changed(text: str) -> str:
            return text if change is None else change(text)

        parts = [
            f"{_HEADS[language]} {', '.join(actions)}",
            changed(f" \n {GOALS[language]} {goal}"),
        ]
        for number, clauses in enumerate(self._observations):
            parts += [changed(observed(number, clauses)), action_prefix(number)]
            # After the newest observation the prompt ends where its action begins.
            if number < len(self._actions):
                parts.append(self._actions[number])
        return "".join(parts)


def with_goal(prompt: str, goal: str) -> str:
    """An English prompt with another goal."""
    before, head, rest = prompt.partition(GOALS[ENGLISH])
    after = rest[rest.index(_LINE) :]
    return f"{before}{head} {goal}{after}"


def sighting(rest: str) -> str:
    """The text for where the goal object is: `rest` is what an observation says after its name.
    Only hindsight data has it.
    """
    return f"{_LINE}Goal:\n{rest}"


def observed(number: int, clauses: Sequence[str]) -> str:
    """A prompt's text for one observation."""
    return "".join([f" \n Observation {number}: ", *(f"{clause}, " for clause in clauses)])


def action_prefix(number: int) -> str:
    """A prompt's text before an action."""
    return f"\n Action {number}: "


@functools.lru_cache(maxsize=4)
def _backend(file: str, changed: int) -> Tokenizer:
    """One tokenizer for all environments of a process, since its cache grows to 60 MB."""
    del changed  # only a cache key: a changed file is read again
    return tokenizer_files.read(file)


class PromptTokens:
    """Tokenizes prompts of at most `length` tokens by a tokenizer.json.

    With `actions` each is tokenised together with the prompt, for models that read both as one
    text: the prompt ends before its last blank, and every action begins with one
    (`core.joint_tokens`).

    Args:
      special: with the tokenizer's special tokens (T5's end token); with `actions` only those in
        front.
      turn: what a chat model's template writes before a prompt and after it, special tokens among
        it; then the tokenizer adds none, and an action begins the answer without a blank.
    """

    def __init__(
        self,
        file: str,
        length: int,
        special: bool = True,
        actions: Sequence[str] = (),
        turn: Sequence[str] = (),
    ) -> None:
        self._backend = _backend(file, os.stat(file).st_mtime_ns)
        self._length = length
        self._special = special and not turn
        self._turn = turn
        self._actions = [after_prompt(action, bool(turn)) for action in actions]
        self.fields = {TOKENS: ArraySpec((length,), "int32")}
        if actions:
            longest = max(len(self._encode(action, special=False)) for action in self._actions)
            shape = (len(actions), longest + _SPARE_TOKENS)
            self.fields |= {
                CANDIDATES: ArraySpec(shape, "int32"),
                CANDIDATE_STARTS: ArraySpec((len(actions),), "int32"),
            }

    def write(self, prompt: str, out: Mapping[str, np.ndarray]) -> None:
        """Writes `fields`: `tokens` int32 [length] of the prompt and `candidates` int32
        [actions, tokens], padded with -1.

        Of each candidate the first `candidate_starts` int32 [actions] tokens are the prompt's.

        Raises:
          UserError: the prompt or an action has too many tokens, or two actions have the same.
        """
        if not self._actions:
            text = in_turn(prompt, self._turn) if self._turn else prompt
            self._fill(prompt, self._encode(text, self._special), out[TOKENS])
            return
        prompt = in_turn(prompt, self._turn)
        texts = [
            self._encode(prompt + action, self._special, closed=False) for action in self._actions
        ]
        # Where its tokens part from those with an action, the action's begin.
        alone = self._encode(prompt, self._special, closed=False)
        joint = joint_tokens.split(prompt, self._actions, alone, texts)
        self._fill(prompt, joint.prompt, out[TOKENS])
        out[CANDIDATE_STARTS][...] = joint.starts
        for action, tokens, row in zip(
            self._actions, joint.candidates, out[CANDIDATES], strict=True
        ):
            if len(tokens) > len(row):
                raise UserError(
                    f"the action {action!r} changes the tokens of the prompt before it ({len(tokens)} tokens, and {len(row)} are allowed): "
                    "choose another tokenizer, or --config.compat.glam_separate_tokens=True"
                )
            row[: len(tokens)] = tokens
            row[len(tokens) :] = -1

    def _fill(self, prompt: str, tokens: Sequence[int], row: np.ndarray) -> None:
        if len(tokens) > self._length:
            raise UserError(
                f"{TOO_LONG_PREFIX}{self._length}: a prompt has {len(tokens)} tokens ({prompt[:120]!r}...): raise it; for an agent that was "
                "trained with it choose another level or change"
            )
        row[: len(tokens)] = tokens
        row[len(tokens) :] = -1

    def _encode(self, text: str, special: bool, closed: bool = True) -> list[int]:
        encoding = self._backend.encode(text, add_special_tokens=special)
        return encoding.ids if closed else joint_tokens.tokens_of(encoding, closed=False)


def in_turn(prompt: str, turn: Sequence[str]) -> str:
    """A prompt that ends before its last blank, between the two texts of a chat model's turn, or
    alone where there are none.
    """
    before, after = turn or ("", "")
    return before + prompt.rstrip(" ") + after


def after_prompt(action: str, begins_answer: bool = False) -> str:
    """An action as the text of a prompt goes on: one blank, and the action; in a chat model's
    answer the action alone.
    """
    name = action.strip(" ")
    return name if begins_answer else f" {name}"
