"""Measures evaluation games of Wordle by an agent with three trunks: 1,024 at once with caches kept between turns, against one by one.

Value: games a second with the quick run's network. Baseline: one game at a time, whose text runs again every turn, as published.
A fresh network plays all six turns. It takes a minute on CPU.
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
_HOW = Decoding("greedy", 6, advantage_weight=16.0, advantage_clip=0.0)  # published for Wordle


class _Anew(AgentTextActor):
    def begin(self, episodes: Sequence[int]) -> None:
        super().begin(episodes)
        self._begun = episodes

    def act(self, observations: Sequence[Any], indices: Sequence[int]) -> list[TextAction]:
        super().begin(self._begun)
        return super().act(observations, indices)


def options() -> ConfigDict:
    """Games at once, games one by one, the network's size, the game's words."""
    network = {"width": 96, "layers": 3, "heads": 4, "dtype": "float32"}
    return ConfigDict({"games": 1024, "plain_games": 64, "num_words": 100, **network})


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    task = registry.make("wordle", {"num_words": chosen.num_words})
    tokenizer = task.tokenizer()
    made = _text_agents.make(chosen, tokenizer.size, _POSITIONS, config.seed)
    together, alone = (kind(*made, tokenizer, _HOW, 1) for kind in (AgentTextActor, _Anew))
    # The first games, which compile, do not count.
    _rate(task, together, chosen.games, chosen.games)
    _rate(task, alone, 1, 1)
    sides = {
        "together": functools.partial(_rate, task, together, chosen.games, chosen.games),
        "alone": functools.partial(_rate, task, alone, chosen.plain_games, 1),
    }
    found = _language.in_turns(sides, config.repeats)
    return result(
        config, "games/s", found["together"], "one by one, the text read again every turn", found["alone"],
        threads=_language.threads(),
    )  # fmt: skip


def _rate(task: TextTask, actor: AgentTextActor, games: int, lanes: int) -> float:
    before = time.perf_counter()
    played = sum(1 for _ in play(task, actor, 1, range(games), lanes))
    return played / (time.perf_counter() - before)
