"""Throughput is told in turns of the game, too, where a task counts them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from motif_jax.rl.episode_log import EpisodeLog
from motif_jax.rl.records import Records


@pytest.mark.parametrize(
    ("fields", "wanted"), [(("turns",), {"throughput/turns_per_second": 360.0}), ((), {})]
)
def test_turns_a_second_are_those_of_the_newest_episodes(fields: Any, wanted: dict[str, float]) -> None:
    log = EpisodeLog(None, 10, with_intrinsic=False, fields=fields)
    log.write([{"env": n, "episode": 0, "length": 10 * n, "turns": 36 * n} for n in (1, 3)])
    spec = SimpleNamespace(episode_fields=fields)
    records: Any = SimpleNamespace(_system=SimpleNamespace(network=SimpleNamespace(spec=spec)), _episodes=log)
    assert Records._turns_per_second(records, 100.0) == pytest.approx(wanted)
