"""Wins, losses and ties of each distinct message in a dataset's labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.motif.pairs.targets import TIE

RARE = 1e-3  # share of steps below which a goal is too rare to teach an agent
# How a message stands to the empty one in the labels.
ABOVE, UNCOMPARED, BELOW = 1, 0, -1
_WINS = 0.9  # least share of won decided comparisons of a message that the goal wants


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """Comparisons of each distinct message with others, and its steps, all int64 [M]."""

    wins: np.ndarray
    losses: np.ndarray
    ties: np.ndarray
    steps: np.ndarray

    @property
    def tied(self) -> np.ndarray:
        """bool [M]: messages that tie in at least half of their comparisons."""
        compared = self.wins + self.losses + self.ties
        return (compared > 0) & (2 * self.ties >= compared)

    @property
    def wanted(self) -> np.ndarray:
        """int64: messages that are not `tied` and win nearly all of their decided comparisons, most frequent first."""
        decided = self.wins + self.losses
        chosen = np.flatnonzero((self.wins > 0) & (self.wins >= _WINS * decided) & ~self.tied)
        return chosen[np.argsort(-self.steps[chosen], kind="stable")]


def count_outcomes(ids: np.ndarray, labels: np.ndarray, num_messages: int) -> Outcomes:
    """Counts each message's outcomes by step: all messages of a winning sub-sequence win; pairs of equal texts do not count.

    `ids` are int [P, 2, L], the index of each step's message, `labels` int [P]: 0 first, 1 second, 2 tie; others are not counted.
    """

    def times(shown: np.ndarray) -> np.ndarray:
        return np.bincount(shown.reshape(-1), minlength=num_messages)

    steps = times(ids)
    differ = (ids[:, 0] != ids[:, 1]).any(axis=1)
    ids, labels = ids[differ], labels[differ]
    first, second = ids[labels == 0], ids[labels == 1]
    wins = times(first[:, 0]) + times(second[:, 1])
    losses = times(first[:, 1]) + times(second[:, 0])
    return Outcomes(wins, losses, times(ids[labels == TIE]), steps)


def against_empty(ids: np.ndarray, labels: np.ndarray, empty: np.ndarray) -> Outcomes:
    """Outcomes, as in `count_outcomes`, of comparisons with sub-sequences that show nothing; `empty` is bool [M]."""
    silent = empty[ids].all(axis=-1)
    one_is_silent = silent[:, 0] != silent[:, 1]
    return count_outcomes(ids[one_is_silent], labels[one_is_silent], len(empty))


def standing(ids: np.ndarray, labels: np.ndarray, empty: np.ndarray) -> np.ndarray:
    """How each message stands to the empty one in the labels: int8 [M], ABOVE, BELOW or UNCOMPARED.

    ABOVE wins more comparisons with silence than it loses. Of messages that were never compared with silence, and of all where
    the dataset has no empty message, those that win nothing are BELOW. Arguments as in `against_empty`.
    """
    every = count_outcomes(ids, labels, len(empty))
    with_silence = against_empty(ids, labels, empty)
    compared = with_silence.wins + with_silence.losses + with_silence.ties > 0
    wins_nothing = (every.wins == 0) & (every.losses + every.ties > 0)
    if not empty.any():
        return np.where(wins_nothing, BELOW, np.where(every.wins > every.losses, ABOVE, UNCOMPARED)).astype(
            np.int8
        )
    beats = with_silence.wins > with_silence.losses
    return np.where(
        compared, np.where(beats, ABOVE, BELOW), np.where(wins_nothing, BELOW, UNCOMPARED)
    ).astype(np.int8)


def misjudged(ids: np.ndarray, labels: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Messages whose decided comparisons the reward mostly orders against the labels, the most wrong ones first.

    `rewards` are float [M], of each message; ids and labels as in `count_outcomes`. Returns their indices int64 [K], and of each
    message, int64 [M], how many comparisons are ordered wrongly. Equal rewards order nothing.
    """
    decided = (labels < TIE) & (ids[:, 0] != ids[:, 1]).any(axis=1)
    ids, labels = ids[decided], labels[decided]
    sums = rewards[ids].astype(np.float64).sum(axis=-1)
    wrong = (sums[:, 0] == sums[:, 1]) | (sums.argmax(axis=1) != labels)

    def times(shown: np.ndarray) -> np.ndarray:
        return np.bincount(shown.reshape(-1), minlength=len(rewards))

    wrongly = times(ids[wrong])
    chosen = np.flatnonzero(2 * wrongly > times(ids))
    return chosen[np.argsort(-wrongly[chosen], kind="stable")], wrongly


def describe(outcomes: Outcomes, messages: np.ndarray | Sequence[str], most: int = 5) -> str:
    """One or two lines: the texts that win most, with their steps, and a warning if they are rare."""
    wanted, total = outcomes.wanted, int(outcomes.steps.sum())
    if not wanted.size:
        return "warning: no text wins its comparisons: the labels give an agent no goal"
    share = float(outcomes.steps[wanted].sum()) / max(1, total)
    shown = ", ".join(f"{text_of(messages[i])!r} {int(outcomes.steps[i]):,}" for i in wanted[:most].tolist())
    line = f"texts that win are on {100 * share:.2g} % of {total:,} steps: {shown}"
    if wanted.size > most:
        line += f" and {wanted.size - most:,} more"
    if share < RARE:
        line += (
            f"\nwarning: the goal occurs on fewer than {RARE:.1%} of the steps: collect with players that reach it "
            "(docs/data.md), or choose another goal"
        )
    return line


def text_of(message: np.ndarray | str) -> str:
    """The text of a message uint8 [bytes]."""
    return message if isinstance(message, str) else text_bytes.decode(message.tobytes().rstrip(b"\0"))
