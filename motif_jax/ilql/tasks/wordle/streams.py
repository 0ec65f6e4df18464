"""Streams of training games: played, branched off an expert's, and adversarial (Snell et al. 2022,
appendix on Wordle).

The latter two test whether values rank an expert's guess above others. A game's `meta` has its
`group`, its `kind`, and the turn in which it leaves the expert's game (`start`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from motif_jax.ilql.dialogues.dialogue import Dialogues, DialogueStream, encode_meta
from motif_jax.ilql.tasks.wordle.game import (
    TRIES,
    BoardPlayer,
    Boards,
    WordTable,
    dialogues_of,
    play,
)

EXPERT, BRANCH, ADVERSARIAL, SUBOPTIMAL = "expert", "branch_suboptimal", "adversarial", "suboptimal"
# The turn at which adversarial games leave the expert's: the third guess, as published.
ADVERSARIAL_TURN = 2
# Games, the group of each, and what its `meta` has besides.
_Part = tuple[Boards, np.ndarray, list[dict[str, Any]]]


def games(table: WordTable, player: BoardPlayer) -> DialogueStream:
    """Whole games of one player."""

    def draw(rng: np.random.Generator, count: int, first: int) -> Dialogues:
        boards = play(Boards(table, count), player, rng)
        return dialogues_of(table.names, boards.guesses, boards.codes, boards.turns, boards.won)

    return draw


def _until(boards: Boards, rows: np.ndarray, turns: np.ndarray) -> Boards:
    """Copies of the games `rows` after their first `turns` int [rows] guesses."""
    copy = Boards(boards.table, len(rows))
    is_earlier = np.arange(TRIES) < turns[:, None]
    copy.guesses[is_earlier] = boards.guesses[rows][is_earlier]
    copy.codes[is_earlier] = boards.codes[rows][is_earlier]
    copy.turns = turns.copy()
    # Which words fit follows from guesses and colours up to there.
    for turn in range(TRIES):
        rows_with_turn = np.flatnonzero(turns > turn)
        table = boards.table.table[copy.guesses[rows_with_turn, turn]]
        copy.fits[rows_with_turn] &= table == copy.codes[rows_with_turn, turn][:, None]
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

    With `restarts` (`compat.wordle_branch_restarts`), as published, the first guess is chosen for
    that state, but played on an empty board.
    """
    start = _until(boards, rows, turns)
    all_games = np.arange(len(rows))
    # In the expert's state in either case; the quirk forgets the state only now.
    guesses = player(start, all_games, rng)
    if restarts:
        start = Boards(boards.table, len(rows))
    start.step(all_games, guesses, rng)
    return play(start, player, rng)


def _grouped(table: WordTable, parts: list[_Part], first: int) -> Dialogues:
    """The games of all parts, sorted by group and numbered from `first`; else their order stays."""
    groups = np.concatenate([part[1] for part in parts])
    # Stable, so that the expert's game comes first in its group.
    order = np.argsort(groups, kind="stable")
    metas = [meta for part in parts for meta in part[2]]
    texts = [encode_meta({**metas[index], "group": first + int(groups[index])}) for index in order]
    guesses, codes, turns, won = (
        np.concatenate([getattr(part[0], name) for part in parts])[order]
        for name in ("guesses", "codes", "turns", "won")
    )
    return dialogues_of(table.names, guesses, codes, turns, won, texts)


def branching(
    table: WordTable, expert: BoardPlayer, other: BoardPlayer, others: int, restarts: bool = False
) -> DialogueStream:
    """An expert's games, and `others` games of another player from each of their states;
    `restarts`: see `_branched`.
    """

    def draw(rng: np.random.Generator, count: int, first: int) -> Dialogues:
        expert_games = play(Boards(table, count), expert, rng)
        rows = np.repeat(np.arange(count), expert_games.turns * others)
        # From the state before each of the expert's guesses.
        turns = np.concatenate([np.repeat(np.arange(n), others) for n in expert_games.turns])
        branches = _branched(expert_games, rows, turns, other, restarts, rng)
        metas = [{"kind": BRANCH, "start": turn} for turn in turns.tolist()]
        parts = [
            (expert_games, np.arange(count), [{"kind": EXPERT}] * count),
            (branches, rows, metas),
        ]
        return _grouped(table, parts, first)

    return draw


def adversarial(
    table: WordTable,
    players: tuple[BoardPlayer, BoardPlayer, BoardPlayer],
    others: int,
    adversaries: int,
    restarts: bool = False,
) -> DialogueStream:
    """An expert's games, each with `others` whole games of a player and `adversaries` of a third
    one.

    The latter leave the expert's game at the third guess; as published, only games with a fourth
    guess have them.
    """
    expert, other, adversary = players

    def draw(rng: np.random.Generator, count: int, first: int) -> Dialogues:
        expert_games = play(Boards(table, count), expert, rng)
        rows = np.repeat(np.flatnonzero(expert_games.turns > ADVERSARIAL_TURN + 1), adversaries)
        turns = np.full(len(rows), ADVERSARIAL_TURN)
        adverse = _branched(expert_games, rows, turns, adversary, restarts, rng)
        groups = np.repeat(np.arange(count), others)
        suboptimal = play(Boards(table, len(groups)), other, rng)
        parts: list[_Part] = [
            (expert_games, np.arange(count), [{"kind": EXPERT}] * count),
            (adverse, rows, [{"kind": ADVERSARIAL, "start": ADVERSARIAL_TURN}] * len(rows)),
            (suboptimal, groups, [{"kind": SUBOPTIMAL, "start": 0}] * len(groups)),
        ]
        return _grouped(table, parts, first)

    return draw
