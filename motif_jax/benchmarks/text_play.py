"""Measures evaluation games of Wordle by an agent with three trunks: 1,024 games at once against
one by one.

Value: games a second with the quick run's network, which keeps its caches between turns. Baseline:
one game at a time, whose text runs again every turn, as published. A fresh network needs all six
turns. It takes a minute on CPU.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, _text_agents, result
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.ilql.evaluation.text_episodes import AgentTextActor, TextAction, play
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.tasks.contract import TextTask

_POSITIONS = 128
_DECODING = Decoding("greedy", 6, advantage_weight=16.0, advantage_clip=0.0)  # published for Wordle


class RereadingActor(AgentTextActor):
    """An actor without caches: it begins its episodes again at every turn."""

    def begin(self, episodes: Sequence[int]) -> None:
        super().begin(episodes)
        self._episodes_to_reread = episodes

    def act(self, observations: Sequence[Any], indices: Sequence[int]) -> list[TextAction]:
        super().begin(self._episodes_to_reread)
        return super().act(observations, indices)


def options() -> ConfigDict:
    """Games at once, games one by one, the game's words, the network's size."""
    return ConfigDict(
        {
            "games": 1024,
            "plain_games": 64,
            "num_words": 100,
            "width": 96,
            "layers": 3,
            # As in the quick run: of a single head of 96 XLA turns the keys over at every token on
            # a CPU.
            "heads": 4,
            "dtype": "float32",
        }
    )


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    task = registry.make("wordle", {"num_words": chosen.num_words})
    tokenizer = task.tokenizer()
    agent = _text_agents.make(chosen, tokenizer.size, _POSITIONS, config.seed)
    together = AgentTextActor(agent.decoder, agent.params, tokenizer, _DECODING, 1)
    alone = RereadingActor(agent.decoder, agent.params, tokenizer, _DECODING, 1)
    # The first games, which compile, do not count.
    _games_per_second(task, together, chosen.games, chosen.games)
    _games_per_second(task, alone, 1, 1)
    sides = {
        "together": functools.partial(
            _games_per_second, task, together, chosen.games, chosen.games
        ),
        "alone": functools.partial(_games_per_second, task, alone, chosen.plain_games, 1),
    }
    rates = _language.alternate(sides, config.repeats)
    return result(
        config,
        "games/s",
        rates["together"],
        "one by one, the text read again every turn",
        rates["alone"],
        threads=_language.usable_cores(),
    )


def _games_per_second(task: TextTask, actor: AgentTextActor, games: int, lanes: int) -> float:
    """The rate at which `actor` plays `games` games, `lanes` of them at once."""
    before = time.perf_counter()
    count = sum(1 for _ in play(task, actor, 1, range(games), lanes))
    return count / (time.perf_counter() - before)
