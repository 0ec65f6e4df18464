"""Similarity of a message's words to those of the goal (ONI's baseline without a language
model).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Self

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import text_bytes
from motif_jax.core.errors import UserError
from motif_jax.motif.annotation.prompts import load_prompt, prompt_path
from motif_jax.motif.reward.frozen_text import FrozenTextReward
from motif_jax.oni.word_vectors import FileVectors, HashedVectors, WordVectors
from motif_jax.rl.config import AgentReward
from motif_jax.rl.intrinsic import RewardSetup


class BagOfWordsReward(FrozenTextReward):
    """Kind 'bag_of_words': cos(e(message), e(goal)) where it is above `similarity`, else 0.

    e sums the vectors of a text's tokens, which white space separates. A file of vectors, named by
    `vectors`, is asked for a token with its case and punctuation, and then without;
    without a file vectors are hashed, of small letters without punctuation. Tokens without a vector
    do not count; a text without any gives 0. `goal` is a goal of the prompts, or a sentence.
    """

    def __init__(self, vectors: WordVectors, setup: RewardSetup) -> None:
        super().__init__(setup)
        self._vectors = vectors
        self._threshold = float(setup.config.similarity)
        # Tokens of the distinct texts so far, and those among them that have no vector.
        self.tokens = 0
        self.unknown = 0

        goal = text_bytes.encode(goal_sentence(setup.config.goal))
        goal_tokens, goal_vectors = self._vectors_of(goal)
        embedding = _sum(goal_vectors)
        norm = np.linalg.norm(embedding)
        if not norm > 0:
            raise UserError(
                f"config.reward.goal={setup.config.goal}: none of its words has a vector in {setup.config.vectors}"
            )
        self._goal = embedding / norm
        missing = goal_tokens - len(goal_vectors)
        self.description = f"likeness to the goal, {vectors.description}; {missing} of the goal's {goal_tokens} tokens have none"

    @classmethod
    def check(cls, config: AgentReward) -> None:
        value = config.similarity
        allowed = "at least -1 and below 1, which no cosine exceeds"
        is_cosine = checks.is_finite(value) and -1 <= value < 1
        checks.require(is_cosine, "reward.similarity", value, allowed)
        goal_sentence(config.goal)
        _open(config.vectors)

    @classmethod
    def files(cls, config: AgentReward) -> tuple[Path, ...]:
        return (Path(config.vectors),) if config.vectors else ()

    @classmethod
    def make(cls, setup: RewardSetup) -> Self:
        return cls(_open(setup.config.vectors), setup)

    def value(self, text: bytes) -> float:
        num_tokens, vectors = self._vectors_of(text)
        self.tokens += num_tokens
        self.unknown += num_tokens - len(vectors)
        embedding = _sum(vectors)
        norm = float(np.linalg.norm(embedding))
        # `_goal` has the norm 1.
        cosine = float(embedding @ self._goal) / norm if norm > 0 else 0.0
        return cosine if cosine > self._threshold else 0.0

    def _vectors_of(self, text: bytes) -> tuple[int, list[np.ndarray]]:
        """The number of a text's tokens, and the vectors float32 [size] of those that have one."""
        tokens = text_bytes.decode(text).split()
        vectors = [self._vectors.of(token.encode()) for token in tokens]
        return len(tokens), [vector for vector in vectors if vector is not None]

    def metrics(self) -> dict[str, float]:
        return {"reward/unknown_tokens": self.unknown / max(1, self.tokens)}


def _sum(vectors: list[np.ndarray]) -> np.ndarray:
    """The sum float32 [size] of vectors; [0] without any, which any vector can be multiplied
    with.
    """
    if not vectors:
        return np.zeros(1, np.float32)
    return np.asarray(np.sum(vectors, axis=0, dtype=np.float32))


# Cached, as `check` and `make` read the same vectors.
@functools.lru_cache(maxsize=1)
def _open(path: str | None) -> WordVectors:
    return FileVectors(path) if path else HashedVectors()


def goal_sentence(goal: str | None) -> str:
    """The sentence that `config.reward.goal` means: a goal of the pair prompts, or the text itself;
    UserError if none.
    """
    checks.require(bool(goal), "reward.goal", goal, "a goal of the prompts, or a sentence")
    assert goal is not None
    if len(goal.split()) > 1:
        return goal
    try:
        sentence = load_prompt(prompt_path("default", ""), goal, "verdict").goal
    except UserError as error:
        raise UserError(str(error).replace("config.goal=", "config.reward.goal=", 1)) from None
    checks.require(
        bool(sentence), "reward.goal", goal, "a goal with a sentence, or a sentence of its own"
    )
    return sentence
