"""Wins, losses and ties of each distinct message in a dataset's labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.core.verdicts import FIRST, SECOND, TIE

# Share of steps below which a goal is too rare to teach an agent.
RARE = 1e-3
# How a message stands to the empty one in the labels.
ABOVE = 1
UNCOMPARED = 0
BELOW = -1
# Smallest share of decided comparisons that a message must win to be one that the goal wants.
_WINS = 0.9


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
        """int64: messages that are not `tied` and win nearly all of their decided comparisons, most
        frequent first.
        """
        decided = self.wins + self.losses
        wins_nearly_all = (self.wins > 0) & (self.wins >= _WINS * decided)
        messages = np.flatnonzero(wins_nearly_all & ~self.tied)
        return messages[np.argsort(-self.steps[messages], kind="stable")]


def count_outcomes(ids: np.ndarray, labels: np.ndarray, num_messages: int) -> Outcomes:
    """Counts each message's outcomes by step: all messages of a winning sub-sequence win; pairs of
    equal texts do not count.

    Args:
      ids: int [P, 2, L], the index of each step's message.
      labels: int [P], 0 first, 1 second, 2 tie; others are not counted.
    """

    def times(message_ids: np.ndarray) -> np.ndarray:
        return np.bincount(message_ids.reshape(-1), minlength=num_messages)

    steps = times(ids)
    # Equal texts are a tie that no judge of texts is asked about.
    differ = (ids[:, 0] != ids[:, 1]).any(axis=1)
    ids = ids[differ]
    labels = labels[differ]
    first_wins = ids[labels == FIRST]
    second_wins = ids[labels == SECOND]
    wins = times(first_wins[:, 0]) + times(second_wins[:, 1])
    losses = times(first_wins[:, 1]) + times(second_wins[:, 0])
    return Outcomes(wins, losses, times(ids[labels == TIE]), steps)


def against_empty(ids: np.ndarray, labels: np.ndarray, empty: np.ndarray) -> Outcomes:
    """Outcomes, as in `count_outcomes`, of comparisons with sub-sequences that show nothing;
    `empty` is bool [M].
    """
    silent = empty[ids].all(axis=-1)
    one_is_silent = silent[:, 0] != silent[:, 1]
    return count_outcomes(ids[one_is_silent], labels[one_is_silent], len(empty))


def standing(ids: np.ndarray, labels: np.ndarray, empty: np.ndarray) -> np.ndarray:
    """How each message stands to the empty one in the labels: int8 [M], ABOVE, BELOW or UNCOMPARED.

    ABOVE wins more comparisons with silence than it loses, and BELOW does not. Of messages that
    were never compared with silence those that win nothing are BELOW. In a dataset without an empty
    message all comparisons stand in for those with silence: pairs are drawn from its steps, so that
    they are with what usually happens. Arguments as in `against_empty`.
    """
    outcomes = count_outcomes(ids, labels, len(empty))
    # A message that was never compared stays UNCOMPARED.
    wins_nothing = (outcomes.wins == 0) & (outcomes.losses + outcomes.ties > 0)
    standings = np.full(len(empty), UNCOMPARED, np.int8)

    standings[wins_nothing] = BELOW
    # The comparison with silence counts, where there was one, whatever the others say.
    with_silence = against_empty(ids, labels, empty) if empty.any() else outcomes
    compared = with_silence.wins + with_silence.losses + with_silence.ties > 0
    beats = with_silence.wins > with_silence.losses
    standings[compared & beats] = ABOVE
    standings[compared & ~beats] = BELOW
    return standings


def misjudged(
    ids: np.ndarray, labels: np.ndarray, rewards: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Messages whose decided comparisons the reward mostly orders against the labels, the most
    wrong ones first.

    Args:
      ids, labels: as in `count_outcomes`.
      rewards: float [M], of each message; the reward of a sub-sequence is their sum.

    Returns:
      indices int64 [K] of the messages, and int64 [M], how many comparisons of each message are
      ordered wrongly. Equal rewards order nothing and count as wrong.
    """
    decided = (labels < TIE) & (ids[:, 0] != ids[:, 1]).any(axis=1)
    ids = ids[decided]
    labels = labels[decided]
    # The loss takes the mean; the sum orders both sides alike, as they have equal lengths.
    returns = rewards[ids].astype(np.float64).sum(axis=-1)
    is_wrong = (returns[:, 0] == returns[:, 1]) | (returns.argmax(axis=1) != labels)

    def times(message_ids: np.ndarray) -> np.ndarray:
        return np.bincount(message_ids.reshape(-1), minlength=len(rewards))

    num_wrong = times(ids[is_wrong])
    mostly_wrong = np.flatnonzero(2 * num_wrong > times(ids))
    return mostly_wrong[np.argsort(-num_wrong[mostly_wrong], kind="stable")], num_wrong


def describe(outcomes: Outcomes, messages: np.ndarray | Sequence[str], limit: int = 5) -> str:
    """One or two lines: the first `limit` texts that the goal wants, with their steps, and a
    warning if they are rare.
    """
    goals = outcomes.wanted
    total = int(outcomes.steps.sum())
    if not goals.size:
        return "warning: no text wins its comparisons: the labels give an agent no goal"
    share = float(outcomes.steps[goals].sum()) / max(1, total)
    texts = [f"{text_of(messages[i])!r} {int(outcomes.steps[i]):,}" for i in goals[:limit].tolist()]
    line = f"texts that win are on {100 * share:.2g} % of {total:,} steps: {', '.join(texts)}"
    if goals.size > limit:
        line += f" and {goals.size - limit:,} more"
    if share < RARE:
        line += (
            f"\nwarning: the goal occurs on fewer than {RARE:.1%} of the steps: collect with players that reach it "
            "(docs/data.md), or choose another goal"
        )
    return line


def text_of(message: np.ndarray | str) -> str:
    """The text of a message uint8 [bytes]."""
    return (
        message if isinstance(message, str) else text_bytes.decode(message.tobytes().rstrip(b"\0"))
    )
