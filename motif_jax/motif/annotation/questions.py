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
    """Ids of questions: hashes of the annotator's identity and the question, so that any run that
    asks the same finds the answer.
    """

    def __init__(self, identity: Mapping[str, Any]) -> None:
        canonical = json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()
        self._identity = hashlib.blake2b(canonical, digest_size=16)
        # Tells the answers of annotators apart, 8 hex digits.
        self.judge = self._identity.hexdigest()[:8]

    def id_of_texts(self, items: Sequence[str], form: Form = PAIR) -> str:
        """Id of a question about texts, 32 hex digits; the order of the texts counts."""
        *front, last = (item.encode() for item in items)
        state = self._identity.copy()
        # A text of one form is another question than the same text of another.
        state.update(b"items %b " % form.name.encode())
        for item in front:
            # The length keeps ("ab", "c") and ("a", "bc") apart.
            state.update(b"%d " % len(item))
            state.update(item)
        state.update(last)
        return state.hexdigest()

    def id_of_pair(self, index: int) -> str:
        """Id of a question about the numbers of a dataset's pair; the dataset's hash is part of the
        identity.
        """
        state = self._identity.copy()
        state.update(b"pair %d" % index)
        return state.hexdigest()


class QuestionList(NamedTuple):
    """The distinct questions of a dataset, in order of their first appearance.

    Attributes:
      questions: the questions, without repeats.
      question_indices: int32 [pairs, orders], the index of a pair's question; -1 where equal
        captions are a tie without asking. There is one order, or two where both are asked.
      swapped: bool [pairs, orders], whether that question has the pair's captions reversed.
    """

    questions: list[Question]
    question_indices: np.ndarray
    swapped: np.ndarray

    def digest(self) -> str:
        """A hash of the questions in their order, by which shards know that they have the same
        list.
        """
        return digests.of_bytes("".join(question.id for question in self.questions).encode())

    def shard(self, index: int, count: int) -> list[Question]:
        """The questions of shard `index` of `count`: contiguous parts whose sizes differ by at most
        one.
        """
        total = len(self.questions)
        return self.questions[index * total // count : (index + 1) * total // count]


def caption_questions(
    pairs: Iterable[tuple[str, str]], num_pairs: int, hasher: QuestionHasher, orders: str = "once"
) -> QuestionList:
    """Lists the distinct questions about the captions of pairs.

    Orders: 'given', each pair as it stands (published); 'once', of (a, b) and (b, a) one is asked,
    drawn by their hash, and its answer serves both; 'both', each pair is asked in both orders.
    """
    width = 2 if orders == "both" else 1
    question_indices = np.full((num_pairs, width), -1, np.int32)
    swapped = np.zeros((num_pairs, width), bool)
    questions: list[Question] = []
    # Captions in their order -> index of the question.
    indices: dict[tuple[str, str], int] = {}

    def index_of(first: str, second: str) -> int:
        """The index of a question, which is added if it is new."""
        index = indices.get((first, second))
        if index is None:
            index = len(questions)
            indices[first, second] = index
            questions.append(Question(hasher.id_of_texts((first, second)), (first, second)))
        return index

    # Numbers follow from the order of the pairs alone: processes of different shards list alike.
    for row, (first, second) in enumerate(pairs):
        if first == second:
            continue
        if orders == "both":
            question_indices[row, 0] = index_of(first, second)
            question_indices[row, 1] = index_of(second, first)
            swapped[row, 1] = True
        elif orders == "given":
            question_indices[row] = index_of(first, second)
        else:
            # The hash reads both texts twice, so that it is computed for new pairs alone.
            if (first, second) in indices:
                reverse = False
            elif (second, first) in indices:
                reverse = True
            else:
                reverse = is_reversed(hasher, first, second)
            question_indices[row] = index_of(second, first) if reverse else index_of(first, second)
            swapped[row] = reverse
    return QuestionList(questions, question_indices, swapped)


def is_reversed(hasher: QuestionHasher, first: str, second: str) -> bool:
    """Whether a pair is asked reversed where one order serves both: drawn by the hash, unbiased."""
    return hasher.id_of_texts((second, first)) < hasher.id_of_texts((first, second))


def pair_questions(num_pairs: int, hasher: QuestionHasher) -> QuestionList:
    """One question for each pair, for annotators that read the dataset's numbers."""
    questions = [Question(hasher.id_of_pair(index), pair=index) for index in range(num_pairs)]
    question_indices = np.arange(num_pairs, dtype=np.int32)[:, None]
    return QuestionList(questions, question_indices, np.zeros((num_pairs, 1), bool))
