"""Games of Wordle a second on one core, against the plain game state by state.

    python -m motif_jax.launch --config=configs/benchmark.py:wordle

Both sides play the same list in turns and are timed by the processor time they use; their mean returns have to agree. Takes a minute.

* value: games of fitting words as arrays, the table of colours included in each measurement;
* baseline: the same game by rows of knowledge and filters over the list (`_plain_wordle.py`), its caches warm;
* besides: the expert from cold, whose first guess is a start word, and the expert's first move.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import result
from motif_jax.benchmarks._plain_wordle import BEGINNING, PlainGame
from motif_jax.envs.wordle.boards import BoardPlayer, Boards, play, returns
from motif_jax.envs.wordle.colours import WordTable
from motif_jax.envs.wordle.expert import best_words
from motif_jax.envs.wordle.policies import parse
from motif_jax.envs.wordle.words import START_WORDS, read_words
from motif_jax.support import config as checks
from motif_jax.support import seeds

# Games at a time.
_LANES = 1024


def options() -> ConfigDict:
    """Settings: the list `words`, `games` of ours a repeat, and of the plain game `plain_games` and `plain_expert_games`."""
    return ConfigDict(
        {"words": "wordle_official_200", "games": 65_536, "plain_games": 400, "plain_expert_games": 20}
    )


def check(config: ConfigDict) -> None:
    """Raises UserError for a list without words, or no games of the plain side."""
    for key in ("plain_games", "plain_expert_games"):
        checks.positive(config, f"options.{key}")
    read_words("options.words", config.options.words)


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line; games per second of processor time."""
    given = config.options
    words = read_words("options.words", given.words)
    starts = [word for word in read_words("policy", START_WORDS) if word in words]
    rates: dict[str, list[float]] = {}
    means: dict[str, list[float]] = {}
    for repeat in range(config.repeats):
        measured = _measured(words, starts, given, seeds.derive(config.seed, "wordle", repeat))
        agree({name: mean for name, (_, mean) in measured.items()}, given.plain_games)
        for name, (rate, mean) in measured.items():
            rates.setdefault(name, []).append(rate)
            means.setdefault(name, []).append(mean)
    medians = {name: float(np.median(values)) for name, values in rates.items()}
    return result(
        "wordle",
        "games/s of one core, fitting words",
        rates["fitting"],
        "the same game state by state: rows of knowledge, filters over the list, caches",
        rates["plain_fitting"],
        {**given.to_dict(), "repeats": config.repeats, "seed": config.seed, "num_words": len(words)},
        per_second=medians,
        expert_from_cold_ratio=medians["expert"] / medians["plain_expert"],
        first_move_ratio=medians["first_move"] / medians["plain_first_move"],
        first_move_seconds=1 / medians["first_move"],
        plain_first_move_seconds=1 / medians["plain_first_move"],
        mean_returns={name: float(np.mean(values)) for name, values in means.items() if "move" not in name},
    )


def _measured(
    words: tuple[str, ...], starts: list[str], given: ConfigDict, seed: int
) -> dict[str, tuple[float, float]]:
    """Both sides in turns: name -> (how often a second, mean return or number of best words)."""
    warm, cold, first = (PlainGame(words, seed) for _ in range(3))
    _plain(warm, False, [], given.plain_games // 4)
    count, few = given.plain_games, given.plain_expert_games
    sides: dict[str, tuple[int, Callable[[], float]]] = {
        "fitting": (given.games, lambda: _ours(words, "fitting", given.games, seed)),
        "plain_fitting": (count, lambda: _plain(warm, False, [], count)),
        "expert": (given.games, lambda: _ours(words, "optimal(start)", given.games, seed)),
        "plain_expert": (few, lambda: _plain(cold, True, starts, few)),
        "first_move": (1, lambda: float(len(_first_move(words)))),
        "plain_first_move": (1, lambda: float(len(first.best(BEGINNING)))),
    }
    found = {}
    for name, (times, side) in sides.items():
        before = time.process_time()
        mean = side()
        found[name] = (times / (time.process_time() - before), mean)
    return found


def _plain(game: PlainGame, expert: bool, starts: list[str], count: int) -> float:
    return float(np.mean([game.play(expert, starts) for _ in range(count)])) if count else 0.0


def _ours(words: tuple[str, ...], policy: str, games: int, seed: int) -> float:
    table, rng = WordTable(words), np.random.default_rng(seed)
    player: BoardPlayer = parse(policy).player(table)
    total = 0.0
    for start in range(0, games, _LANES):
        count = min(_LANES, games - start)
        total += returns(play(Boards(table, count), player, rng)).sum()
    return total / games


def _first_move(words: tuple[str, ...]) -> np.ndarray:
    table = WordTable(words)
    return best_words(table.table, np.arange(table.size))


def agree(means: dict[str, float], plain_games: int) -> None:
    """Raises RuntimeError when the two sides do not play the same game: other mean returns or numbers of best words."""
    # A game's return has a standard deviation of about 1.2.
    far = abs(means["fitting"] - means["plain_fitting"]) > 6 * 1.2 / math.sqrt(plain_games)
    if far or means["first_move"] != means["plain_first_move"]:
        raise RuntimeError(f"the two sides do not play the same game: {means}")
