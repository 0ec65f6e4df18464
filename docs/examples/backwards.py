"""A text task of one's own: say the letters of a word backwards, one a turn. Its tokenizer is
learned from its dialogues.

    PYTHONPATH=docs/examples python -m motif_jax.launch --config=configs/train_text.py:ilql \\
        --workdir=runs/backwards --config.task=backwards:Task --config.policy=half \\
        --config.options='{"length": 4}' --config.network.width=64 \\
        --config.network.layers=2 --config.network.heads=4 --config.max_steps=500
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.tasks.contract import Observation, Outcome, TextEnvironment, TextPolicy
from motif_jax.ilql.tasks.file_tokens import FileTokenTask


class Spelling(Observation):
    """The word, and the letters that the agent has said so far: each pays 1 where it is right."""

    def __init__(self, word: str, letters: tuple[str, ...] = ()) -> None:
        self.word = word
        self.letters = letters

    def to_sequence(self) -> Dialogue:
        """The texts, the reward of each (None: not an action), and whether it is the end."""
        pairs = zip(self.letters, reversed(self.word), strict=False)
        rewards = [float(letter == right_letter) for letter, right_letter in pairs]
        return Dialogue(
            (self.word, *self.letters), (None, *rewards), len(self.letters) == len(self.word)
        )


class Backwards(TextEnvironment):
    """Draws a word of a, b and c."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._now = Spelling("")

    def reset(self, rng: np.random.Generator, start: Observation | None = None) -> Observation:
        """Begins an episode, or continues that of an observation."""
        word = "".join(rng.choice(list("abc"), self._length))
        self._now = start if isinstance(start, Spelling) else Spelling(word)
        return self._now

    def step(self, action: str) -> Outcome:
        """Takes what the agent says."""
        if self._now.to_sequence().terminal:
            raise ValueError("the episode has ended")
        self._now = Spelling(self._now.word, (*self._now.letters, action))
        dialogue = self._now.to_sequence()
        return Outcome(self._now, dialogue.rewards[-1], dialogue.terminal)


class Speaker(TextPolicy):
    """Says the right letter with probability `share`, else any."""

    def __init__(self, share: float) -> None:
        self._share = share

    def act(self, observation: Observation, rng: np.random.Generator) -> str:
        """The next letter."""
        assert isinstance(observation, Spelling)
        if rng.random() < self._share:
            return observation.word[::-1][len(observation.letters)]
        return str(rng.choice(list("abc")))


class Task(FileTokenTask):
    """What stages ask for; `options` are the defaults with what `config.options` gives.

    So many byte pairs as `vocab_size` says are learned from the dialogues, and their folder becomes
    the option `tokenizer`.
    """

    defaults: ClassVar[dict[str, Any]] = {"length": 3, "tokenizer": "", "vocab_size": 300}

    def environment(self) -> TextEnvironment:
        """A new one."""
        return Backwards(self.options["length"])

    def policy(self, name: str) -> TextPolicy:
        """Who plays the games that are learned from."""
        share_right = {"right": 1.0, "half": 0.5}
        if name not in share_right:
            raise UserError(f"config.policy={name}: must be one of {', '.join(share_right)}")
        return Speaker(share_right[name])
