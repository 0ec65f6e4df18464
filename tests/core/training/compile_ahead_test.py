"""Programs of all widths are known, and compiled, before the first step."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.core.devices import compiled_programs
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training.trainer import OfflineTrainer
from motif_jax.lm.token_batches import BucketBatches, Buckets
from tests import bigrams


def test_each_widths_first_chunk_is_known_before_training() -> None:
    lengths = np.array([3] * 40 + [60] * 24 + [200] * 8)
    batches = BucketBatches(None, lengths, 200, batch_size=4, seed=1, group=2)  # type: ignore[arg-type]
    order = Buckets(lengths, batches.widths, 4, seed=1, group=2)

    first_steps = batches.first_of_each_width(2)

    all_widths = {order.rows(step).width for step in range(batches.steps_per_pass)}
    assert len(all_widths) == 3
    assert sorted(order.rows(step).width for step in first_steps) == sorted(all_widths)


def test_programs_of_known_shapes_are_compiled_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parallel = DataParallel(jax.local_devices()[:1])
    task = bigrams.Bigrams(parallel)
    monkeypatch.setattr(task, "first_chunks", lambda: [0, 8], raising=False)
    compiled: list[Any] = []
    compile_together = compiled_programs.compile_together

    def record(lowered: Any) -> None:
        compile_together(lowered)
        compiled.extend(lowered)

    monkeypatch.setattr(compiled_programs, "compile_together", record)
    trainer = OfflineTrainer(task, bigrams.CONFIG)
    carry = trainer.place(task.init_state())

    trainer.compile_ahead(carry)

    assert len(compiled) == 2
    # The state was not taken: the training begins with it.
    trainer.train_chunk(carry, task.batches(0, 1))
