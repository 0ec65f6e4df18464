"""train_text killed, and asked to stop in the middle of a chunk."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.interruption import EXIT_CODE
from motif_jax.core.training.trainer import OfflineTrainer
from motif_jax.ilql import text_task
from motif_jax.ilql import train_text as stage
from tests import resumed
from tests.ilql.train_text_test import config_of, same_bits, train
from tests.toy_text import Backwards, Task


class OfAnyLength(Backwards):
    def __init__(self, longest: int) -> None:
        super().__init__(longest)
        self._longest = longest

    def reset(self, rng: np.random.Generator, start: Any = None) -> Any:
        self._length = int(rng.integers(1, self._longest + 1))
        return super().reset(rng, start)


class Uneven(Task):
    """Words of any length, so that steps of a stream are of unequal width."""

    def environment(self) -> OfAnyLength:
        return OfAnyLength(self.options["length"])


@pytest.mark.slow
def test_a_run_stopped_within_a_chunk_ends_with_equal_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout depends on the width of the chunk, whose longest dialogue is in the step before the
    stop.
    """
    values = {
        "task": f"{__name__}:Uneven", "options": '{"length": 9}', "network.max_length": 32, "dropout": 0.5, "batch_size": 2, "chunk_steps": 4, "evaluate_every": 4,
        "seed": 1,
    }  # fmt: skip
    should_continue = OfflineTrainer.should_continue
    batches = text_task.TextTraining.batches
    widths: list[list[int]] = []  # of the steps of each chunk

    def stopped(self: Any, started: Any) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return should_continue(self, started)

    def measured(self: Any, first: int, count: int) -> Any:
        widths.append(
            [batches(self, step, 1).tokens.shape[-1] for step in range(first, first + count)]
        )
        return batches(self, first, count)

    config = config_of("bc", **values)
    with monkeypatch.context() as patch:
        patch.setattr(OfflineTrainer, "should_continue", stopped)
        patch.setattr(text_task.TextTraining, "batches", measured)
        assert stage.run(config, tmp_path / "stopped") == EXIT_CODE
    assert widths[0][0] > max(widths[0][1:])
    with resumed.takes(3):
        assert stage.run(config, tmp_path / "stopped") == 0
    assert same_bits(train(tmp_path / "undisturbed", "bc", **values), tmp_path / "stopped")
