"""A dataset's distinct questions, and the pairs that they belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import digests
from motif_jax.core.verdicts import PAIR, Form
from motif_jax.motif.annotation.annotator import Question

ORDERS = ("once", "given", "both")


class QuestionHasher:
    """Ids of questions: hashes of the annotator's identity and the question, so that all who ask the same find the answer."""

    def __init__(self, identity: Mapping[str, Any]) -> None:
        canonical = json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()
        self._identity = hashlib.blake2b(canonical, digest_size=16)

    def items(self, items: Sequence[str], form: Form = PAIR) -> str:
        *front, last = (item.encode() for item in items)
        state = self._identity.copy()
        state.update(b"items %b " % form.name.encode())
        for item in front:
            # The length keeps ("ab", "c") and ("a", "bc") apart.
            state.update(b"%d " % len(item))
            state.update(item)
        state.update(last)
        return state.hexdigest()

    def pair(self, index: int) -> str:
        state = self._identity.copy()
        state.update(b"pair %d" % index)
        return state.hexdigest()


class QuestionList(NamedTuple):
    """The distinct questions of a dataset, in order of their first appearance.

    `asked` int32 [pairs, orders]: index of a pair's question; -1 where equal captions are a tie without asking. `swapped` bool:
    whether that question has the pair's captions reversed; of two orders the second.
    """

    questions: list[Question]
    asked: np.ndarray
    swapped: np.ndarray

    def digest(self) -> str:
        return digests.of_bytes("".join(question.id for question in self.questions).encode())

    def shard(self, index: int, count: int) -> list[Question]:
        """The questions of shard `index` of `count`: contiguous parts whose sizes differ by at most one."""
        total = len(self.questions)
        return self.questions[index * total // count : (index + 1) * total // count]


def caption_questions(
    pairs: Iterable[tuple[str, str]], num_pairs: int, hasher: QuestionHasher, orders: str = "once"
) -> QuestionList:
    """Lists the distinct questions about the captions of pairs.

    Orders: 'given', each pair as it stands (published); 'once', of (a, b) and (b, a) one is asked, drawn by their hash, and its
    answer serves both; 'both', each pair is asked in both orders.
    """
    width = 2 if orders == "both" else 1
    asked = np.full((num_pairs, width), -1, np.int32)
    swapped = np.zeros((num_pairs, width), bool)
    questions: list[Question] = []
    position: dict[tuple[str, str], int] = {}

    def place(first: str, second: str) -> int:
        found = position.get((first, second))
        if found is None:
            found = position[first, second] = len(questions)
            questions.append(Question(hasher.items((first, second)), (first, second)))
        return found

    for row, (first, second) in enumerate(pairs):
        if first == second:
            continue
        if orders == "both":
            asked[row] = place(first, second), place(second, first)
            swapped[row, 1] = True
        elif orders == "given":
            asked[row] = place(first, second)
        else:
            known = (first, second) in position
            reverse = not known and ((second, first) in position or is_reversed(hasher, first, second))
            asked[row] = place(second, first) if reverse else place(first, second)
            swapped[row] = reverse
    return QuestionList(questions, asked, swapped)


def is_reversed(hasher: QuestionHasher, first: str, second: str) -> bool:
    """Whether a pair is asked reversed where one order serves both: drawn by the hash, unbiased."""
    return hasher.items((second, first)) < hasher.items((first, second))


def pair_questions(num_pairs: int, hasher: QuestionHasher) -> QuestionList:
    """One question for each pair, for annotators that read the dataset's numbers."""
    questions = [Question(hasher.pair(index), pair=index) for index in range(num_pairs)]
    asked = np.arange(num_pairs, dtype=np.int32)[:, None]
    return QuestionList(questions, asked, np.zeros((num_pairs, 1), bool))
