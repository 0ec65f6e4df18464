"""A text task outside the package, as docs/ilql.md shows it: say the letters of a word backwards, one a turn."""

from __future__ import annotations

import multiprocessing
import os
import string

from motif_jax.datasets.dialogues.dialogue import Dialogue
from motif_jax.datasets.dialogues.items import DELIMITER_TEXTS, Delimiters
from motif_jax.envs.text.contract import Observation, Outcome, TextEnvironment, TextPolicy, TextTask


class Letters:
    """Tokens: the letters, then the delimiters."""

    delimiters = Delimiters(*range(26, 32))
    size = 32

    def encode(self, text):
        return [string.ascii_lowercase.index(letter) for letter in text]

    def decode(self, tokens):
        return "".join((*string.ascii_lowercase, *DELIMITER_TEXTS)[token] for token in tokens)


class Said(Observation):
    def __init__(self, word, said=()):
        self.word, self.said = word, said

    def to_sequence(self):
        rewards = [float(a == b) for a, b in zip(self.said, reversed(self.word))]
        return Dialogue((self.word, *self.said), (None, *rewards), len(self.said) == len(self.word))


class Backwards(TextEnvironment):
    def __init__(self, length):
        self._length, self._now = length, Said("")

    def reset(self, rng, start=None):
        word = "".join(rng.choice(list("abc"), self._length))
        self._now = Said(word) if start is None else start
        return self._now

    def step(self, action):
        if self._now.to_sequence().terminal:
            raise ValueError("the episode has ended")
        self._now = Said(self._now.word, (*self._now.said, action))
        dialogue = self._now.to_sequence()
        return Outcome(self._now, dialogue.rewards[-1], dialogue.terminal)


class Speaker(TextPolicy):
    """Right with probability `share`."""

    def __init__(self, share):
        self._share = share

    def act(self, observation, rng):
        if rng.random() < self._share:
            return observation.word[::-1][len(observation.said)]
        return str(rng.choice(list("abc")))


class Task(TextTask):
    defaults = {"length": 3}

    def tokenizer(self):
        return Letters()

    def environment(self):
        return Backwards(self.options["length"])

    def policy(self, name):
        return Speaker({"right": 1.0, "half": 0.5}[name])


class Fatal(Task):
    """Its environments end the worker processes that make one."""

    def environment(self):
        if multiprocessing.parent_process() is not None:
            os._exit(3)
        return super().environment()
