"""The text task of docs/examples/backwards.py with letters as its tokens, which need no
learning.
"""

from __future__ import annotations

import multiprocessing
import os
import string

from docs.examples import backwards
from docs.examples.backwards import Backwards
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import DELIMITER_TEXTS, Delimiters
from motif_jax.ilql.evaluation.text_episodes import DialogueObservation
from motif_jax.ilql.tasks.contract import Outcome, TextEnvironment

__all__ = ["Backwards", "Fatal", "Key", "LetterTable", "Letters", "Task"]


class Letters:
    """Tokens: the letters, then the delimiters."""

    delimiters = Delimiters(*range(26, 32))
    size = 32

    def encode(self, text):
        return [string.ascii_lowercase.index(letter) for letter in text]

    def decode(self, tokens):
        return "".join((*string.ascii_lowercase, *DELIMITER_TEXTS)[token] for token in tokens)


class LetterTable(Letters):
    """The same from a table, which raises KeyError for other characters."""

    numbers = {letter: number for number, letter in enumerate(string.ascii_lowercase)}

    def encode(self, text):
        return [self.numbers[letter] for letter in text]


class Task(backwards.Task):
    defaults = {"length": 3}

    def learned_tokens(self):
        return 0

    def tokenizer(self):
        return Letters()


class Key(TextEnvironment):
    """An environment for recorded dialogues: any answer to what is seen is worth 1, and ends the
    episode.
    """

    SEEN = "You see a key"

    def reset(self, rng, start=None):
        return DialogueObservation(Dialogue((self.SEEN,), (None,), False))

    def step(self, action):
        answered = Dialogue((self.SEEN, action), (None, 1.0), True)
        return Outcome(DialogueObservation(answered), 1.0, True)


class Fatal(Task):
    """Its environments end the worker processes that make one."""

    def environment(self):
        if multiprocessing.parent_process() is not None:
            os._exit(3)
        return super().environment()
