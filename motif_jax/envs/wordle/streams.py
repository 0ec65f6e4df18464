"""Streams of training games: played, branched off an expert's, and adversarial (Snell et al. 2022, appendix on Wordle).

The latter two test whether values rank an expert's guess above others. A game's `meta` has its `group`, its `kind`, and
the turn in which it leaves the expert's game (`start`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from motif_jax.datasets.dialogues.dialogue import Dialogues, encode_meta
from motif_jax.envs.wordle.boards import TRIES, BoardPlayer, Boards, play, to_dialogues
from motif_jax.envs.wordle.colours import WordTable

EXPERT, BRANCH, ADVERSARIAL, SUBOPTIMAL = "expert", "branch_suboptimal", "adversarial", "suboptimal"
# The turn at which adversarial games leave the expert's: the third guess, as published.
ADVERSARIAL_TURN = 2


class Games:
    """Whole games of one player."""

    def __init__(self, table: WordTable, player: BoardPlayer) -> None:
        self._table, self._player = table, player

    def sample(self, rng: np.random.Generator, count: int, first: int = 0) -> Dialogues:
        del first
        played = play(Boards(self._table, count), self._player, rng)
        return to_dialogues(played, np.full(count, "{}", object))


def _until(boards: Boards, rows: np.ndarray, turns: np.ndarray) -> Boards:
    copy = boards.taken(rows)
    kept = np.arange(TRIES) < turns[:, None]
    copy.guesses[~kept], copy.codes[~kept] = 0, 0
    copy.turns, copy.won = turns.copy(), np.zeros(len(rows), bool)
    copy.fits[:] = True
    for turn in range(TRIES):
        there = np.flatnonzero(turns > turn)
        table = boards.table.table[copy.guesses[there, turn]]
        copy.fits[there] &= table == copy.codes[there, turn][:, None]
    return copy


def _branched(
    boards: Boards,
    rows: np.ndarray,
    turns: np.ndarray,
    player: BoardPlayer,
    restarts: bool,
    rng: np.random.Generator,
) -> Boards:
    """Games that continue from the first `turns` turns of others, by another player.

    With `restarts` (`compat.wordle_branch_restarts`), as published, the first guess is chosen for that state, but played
    on an empty board.
    """
    start = _until(boards, rows, turns)
    everything = np.arange(len(rows))
    guesses = player.choose(start, everything, rng)
    if restarts:
        start = Boards(boards.table, len(rows))
    start.step(everything, guesses, rng)
    return play(start, player, rng)


def _joined(parts: list[tuple[Boards, list[str], np.ndarray]]) -> Dialogues:
    """All games, sorted by group; within a group their order stays."""
    dialogues = Dialogues.joined(
        [to_dialogues(boards, np.array(metas, object)) for boards, metas, _ in parts]
    )
    order = np.argsort(np.concatenate([groups for _, _, groups in parts]), kind="stable")
    starts, lengths = dialogues.starts[:-1][order], np.diff(dialogues.starts)[order]
    ends = np.cumsum(lengths)
    utterances = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
    return Dialogues(
        np.concatenate([[0], ends]).astype(np.int64),
        dialogues.texts[utterances],
        dialogues.rewards[utterances],
        dialogues.actions[utterances],
        dialogues.terminals[order],
        dialogues.metas[order],
    )


class Branching:
    """An expert's games, and `others` games of another player from each of their states; `restarts`: see `_branched`."""

    def __init__(
        self, table: WordTable, expert: BoardPlayer, other: BoardPlayer, others: int, restarts: bool = False
    ) -> None:
        self._table, self._expert, self._other = table, expert, other
        self._others, self._restarts = others, restarts

    def sample(self, rng: np.random.Generator, count: int, first: int = 0) -> Dialogues:
        """`count` expert games with their branches; groups are numbered from `first`."""
        played = play(Boards(self._table, count), self._expert, rng)
        rows = np.repeat(np.arange(count), played.turns * self._others)
        turns = np.concatenate([np.repeat(np.arange(n), self._others) for n in played.turns])
        branches = _branched(played, rows, turns, self._other, self._restarts, rng)
        metas = [
            encode_meta({"group": first + row, "kind": BRANCH, "start": turn})
            for row, turn in zip(rows.tolist(), turns.tolist(), strict=True)
        ]
        experts = [encode_meta({"group": first + row, "kind": EXPERT}) for row in range(count)]
        return _joined([(played, experts, np.arange(count)), (branches, metas, rows)])


class Adversarial:
    """An expert's games, each with `others` whole games of another player and `adversaries` that leave it at the third guess.

    As published, only expert games with a fourth guess have adversaries.
    """

    def __init__(
        self,
        table: WordTable,
        expert: BoardPlayer,
        other: BoardPlayer,
        adversary: BoardPlayer,
        others: int,
        adversaries: int,
        restarts: bool = False,
    ) -> None:
        self._table, self._expert, self._other, self._adversary = table, expert, other, adversary
        self._others, self._adversaries, self._restarts = others, adversaries, restarts

    def sample(self, rng: np.random.Generator, count: int, first: int = 0) -> Dialogues:
        """`count` expert games with their groups, numbered from `first`."""
        played = play(Boards(self._table, count), self._expert, rng)
        long = np.flatnonzero(played.turns > ADVERSARIAL_TURN + 1)
        rows = np.repeat(long, self._adversaries)
        turns = np.full(len(rows), ADVERSARIAL_TURN)
        adverse = _branched(played, rows, turns, self._adversary, self._restarts, rng)
        other = np.repeat(np.arange(count), self._others)
        whole = play(Boards(self._table, len(other)), self._other, rng)
        parts: list[tuple[Boards, np.ndarray, dict[str, Any]]] = [
            (played, np.arange(count), {"kind": EXPERT})
        ]
        parts.append((adverse, rows, {"kind": ADVERSARIAL, "start": ADVERSARIAL_TURN}))
        parts.append((whole, other, {"kind": SUBOPTIMAL, "start": 0}))
        return _joined(
            [
                (boards, [encode_meta({**meta, "group": first + group}) for group in groups.tolist()], groups)
                for boards, groups, meta in parts
            ]
        )
