"""The other side of talks about synthetic pictures: it answers, guesses, and asks; the published server's part, by rules.

The guesser ranks the true picture among a pool by the squared distance of features to those that it expects; which of the two groups is
its first it does not know, so the nearer order counts. 1 - rank / pool is the value of a talk.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from motif_jax.envs.scenes import pictures, talking
from motif_jax.envs.scenes.pictures import COLOUR, KINDS, NUMBER, PLACE, SIDE, block
from motif_jax.envs.text.contract import TextPolicy
from motif_jax.envs.visdial.environment import History
from motif_jax.support.errors import UserError

_GROUP_WIDTH = sum(map(len, pictures.GROUP))


def _turned(features: np.ndarray) -> np.ndarray:
    """Features with the groups the other way round, [..., WIDTH]."""
    start, width = pictures.STARTS[1], _GROUP_WIDTH
    place, first, second = np.split(features, [start, start + width], axis=-1)
    return np.concatenate([place, second, first], axis=-1)


def pairs(history: History) -> list[tuple[str, str]]:
    """(question, answer) of each turn that has both.

    Raises:
      ValueError: it is no history.
    """
    found: list[tuple[str, str]] = []
    question: str | None = None
    for item in history:
        speaker, text = item.get("speaker"), item.get("text")
        if speaker not in ("question", "answer") or not isinstance(text, str):
            raise ValueError("history must be a list of {speaker: question or answer, text}")
        if speaker == "question":
            question = text
        elif question is not None:
            found.append((question, text))
            question = None
    return found


class Speaker:
    """An `OtherSide` that sees pictures by their features.

    Args:
      pool: float [N, WIDTH], features of the pictures among which the true one is ranked.
      seed: of the questions that it asks.
    """

    def __init__(self, pool: np.ndarray, seed: int = 0) -> None:
        width = pictures.WIDTH
        rows = np.asarray(pool, np.float64).reshape(-1, width)
        self._pool = np.stack([pictures.seen(row).features() for row in rows]).astype(np.float64)
        self._seed = seed
        self._ranked = functools.lru_cache(4096)(self._rank)
        self.failures = 0

    def step(
        self, history: History, caption: str, features: np.ndarray, reward: str = "rank"
    ) -> tuple[str, float]:
        """See `OtherSide`."""
        said = self.answer(history, caption, features)
        told = [*history, {"speaker": "answer", "text": said}]
        return said, self.value(told, caption, features, reward)

    def answer(self, history: History, caption: str, features: np.ndarray) -> str:
        """The answer to the last question."""
        if not history or history[-1].get("speaker") != "question":
            raise ValueError("history must end with a question")
        return talking.answer(pictures.seen(features), str(history[-1].get("text")), caption)

    def value(self, history: History, caption: str, features: np.ndarray, reward: str = "rank") -> float:
        """See `OtherSide`; `reward` 'distance': by how much the mean squared distance fell."""
        said = tuple(pairs(history))
        worth = self._ranked if reward == "rank" else self._nearness
        picture = pictures.seen(features)
        now = worth(caption, said, picture)
        return now - worth(caption, said[:-1], picture) if said else now

    def _expected(self, caption: str, said: Sequence[tuple[str, str]]) -> np.ndarray:
        belief = talking.Belief(caption)
        for question, text in said:
            belief.hear(question, text)
        return belief.expected()

    def _distances(self, expected: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Squared, to the nearer order of the groups, of features [..., WIDTH]."""
        both = [((features - each) ** 2).sum(axis=-1) for each in (expected, _turned(expected))]
        return np.minimum(*both)

    def _rank(self, caption: str, said: Sequence[tuple[str, str]], picture: pictures.Picture) -> float:
        expected = self._expected(caption, said)
        own = self._distances(expected, picture.features().astype(np.float64))
        # Pictures that are alike share a rank; rounding must not part them.
        others = self._distances(expected, self._pool)
        nearer, alike = (others < own - 1e-9).sum(), (abs(others - own) <= 1e-9).sum()
        return 1.0 - float(nearer + alike / 2) / (len(self._pool) + 1)

    def _nearness(self, caption: str, said: Sequence[tuple[str, str]], picture: pictures.Picture) -> float:
        expected = self._expected(caption, said)
        own = self._distances(expected, picture.features().astype(np.float64))
        return -float(own) / pictures.WIDTH

    def ask(self, history: History, caption: str) -> str:
        """See `OtherSide`: an open question about something that is not known yet."""
        return informed(caption, pairs(history), np.random.default_rng([self._seed, len(history)]))


def _open_questions(belief: talking.Belief) -> list[str]:
    """Those whose answers are not known yet."""
    found = [] if belief.known(PLACE) else ["where is this?"]
    for group, kind in enumerate(belief.named):
        more = talking.plural(kind, "two")
        for attribute, text in (
            (COLOUR, f"what colour is the {kind}?"),
            (NUMBER, f"how many {more} are there?"),
            (SIDE, f"where is the {kind}?"),
        ):
            if not belief.known(block(group, attribute)):
                found.append(text)
    if len(belief.named) < 2:
        found.append("what else is there?")
    return found


def informed(caption: str, said: Sequence[tuple[str, str]], rng: np.random.Generator) -> str:
    """An open question about something that is not known yet; 'what else is there?' once all is."""
    belief = talking.Belief(caption)
    for question, text in said:
        belief.hear(question, text)
    questions = _open_questions(belief) or ["what else is there?"]
    return questions[int(rng.integers(len(questions)))]


def guessing(caption: str, said: Sequence[tuple[str, str]], rng: np.random.Generator) -> str:
    """A question for yes or no, about anything."""

    def one(listed: Sequence[str]) -> str:
        return listed[int(rng.integers(len(listed)))]

    named = talking.Belief(caption).named
    kind = named[0] if named and rng.random() < 0.7 else one(KINDS)
    return one(
        [
            f"is the {kind} {one(pictures.COLOURS)}?",
            f"are there {one(pictures.NUMBERS[1:])} {talking.plural(kind, 'two')}?",
            f"is the {kind} on the {one(pictures.SIDES)}?",
            f"is there a {one(KINDS)}?",
            f"is it in a {one(pictures.PLACES)}?",
        ]
    )


def careless(caption: str, said: Sequence[tuple[str, str]], rng: np.random.Generator) -> str:
    """A question that was asked before, or one that nobody can answer."""
    if said and rng.random() < 0.7:
        return said[int(rng.integers(len(said)))][0]
    odd = ("what time is it?", "can you see the sun?", "what is the weather like?", "is it a nice picture?")
    return odd[int(rng.integers(len(odd)))]


_SHARE = re.compile(r"(\w+)(?: (0?\.\d+|1(?:\.0*)?))?")
QUESTIONERS = {"informed": informed, "guessing": guessing, "careless": careless}


class Questioner(TextPolicy):
    """Asks as one of `QUESTIONERS`, drawn every turn.

    Args:
      shares: name -> probability; they sum to 1.
    """

    def __init__(self, shares: dict[str, float]) -> None:
        # numpy takes no sum that is as far from 1 as that of written digits may be.
        self._names, self._shares = list(shares), [share / sum(shares.values()) for share in shares.values()]

    def ask(self, caption: str, said: Sequence[tuple[str, str]], rng: np.random.Generator) -> str:
        """The next question after (question, answer) of each turn so far."""
        name = self._names[int(rng.choice(len(self._names), p=self._shares))]
        return QUESTIONERS[name](caption, said, rng)

    def act(self, observation: Any, rng: np.random.Generator) -> str:
        """See `TextPolicy`; what was said is read from the dialogue."""
        texts = observation.to_sequence().texts
        return self.ask(texts[0], list(zip(texts[1::2], texts[2::2], strict=False)), rng)


def questioner(policy: str) -> Questioner:
    """A policy such as 'informed', or several with their probabilities: 'informed 0.3, guessing 0.4, careless 0.3'.

    Raises:
      UserError: it is none of them.
    """
    shares: dict[str, float] = {}
    for part in policy.split(","):
        found = _SHARE.fullmatch(part.strip())
        if found is None or found[1] not in QUESTIONERS or found[1] in shares:
            shares = {}
            break
        shares[found[1]] = float(found[2] or 1)
    if not shares or abs(sum(shares.values()) - 1) > 1e-6:
        raise UserError(
            f"config.policy={policy}: must be one of {', '.join(QUESTIONERS)}, or several with probabilities that sum to 1, such "
            "as 'informed 0.3, guessing 0.4, careless 0.3'"
        )
    return Questioner(shares)
