"""A task of the offline trainer from outside the package: the next letter after each letter,
learned from a text.

    python -m tests.bigrams FOLDER [STEP]

trains it in FOLDER, and dies of SIGKILL when the batch of STEP is asked for.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from motif_jax.core import seeds
from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.sections import Optimizer
from motif_jax.core.training.config import DatasetConfig
from motif_jax.core.training.task import Evaluation, Task, TrainingPosition
from motif_jax.core.training.trainer import OfflineTrainer

TEXT = b"the quick brown fox jumps over the lazy dog and the dog is not amused at all by it " * 4
BATCH = 16
LETTERS = 128
# Saves after each chunk of steps.
CONFIG = DatasetConfig(
    batch_size=BATCH, chunk_steps=3, optimizer=Optimizer(learning_rate=0.1), save_every_seconds=0
)


class State(NamedTuple):
    logits: Any
    opt_state: Any


class Bigrams(Task):
    title = "train bigrams"
    unit = "letters"
    source = "a text"
    steps = 20
    steps_per_epoch = 8
    chunk_steps = CONFIG.chunk_steps
    remedy = "a smaller learning rate"

    def __init__(
        self,
        parallel: DataParallel,
        config: DatasetConfig = CONFIG,
        die_at: int | None = None,
    ) -> None:
        self.parallel = parallel
        self.seed = config.seed
        self.die_at = die_at
        self.text = np.frombuffer(TEXT, np.uint8).astype(np.int32)
        self.digests = {"the text": hashlib.sha256(TEXT).hexdigest()}
        self.optimizer = optax.adam(config.optimizer.learning_rate)
        self._loss = parallel.wrap(lambda logits, batch: jax.lax.pmean(_loss(logits, batch), AXIS))

    def init_state(self) -> State:
        logits = seeds.rng(self.seed, "logits").normal(size=(LETTERS, LETTERS)).astype(np.float32)
        return State(logits, jax.device_get(self.optimizer.init(logits)))

    def step(self, state: State, shared: Any, batch: Any) -> tuple[State, dict[str, Any]]:
        loss, gradient = jax.lax.pmean(jax.value_and_grad(_loss)(state.logits, batch), AXIS)
        updates, opt_state = self.optimizer.update(gradient, state.opt_state)
        new = State(optax.apply_updates(state.logits, updates), opt_state)
        return new, {"loss": loss, "gradient_norm": optax.tree.norm(gradient)}

    def batches(self, first: int, count: int) -> dict[str, np.ndarray]:
        if self.die_at is not None and first + count > self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        steps = range(first, first + count)
        positions = [
            seeds.rng(self.seed, "step", n).integers(0, len(self.text) - 1, BATCH) for n in steps
        ]
        return {"letter": self.text[positions], "next": self.text[np.add(positions, 1)]}

    def evaluate(self, state: State, shared: Any, position: TrainingPosition) -> Evaluation:
        size = (len(self.text) - 1) // BATCH * BATCH
        columns = {"letter": self.text[:size], "next": self.text[1 : size + 1]}
        loss = float(self._loss(state.logits, self.parallel.put_batch(columns, 0)))
        row = {f"train/{name}": number for name, number in self.shown(position.sums).items()}
        row["validation/loss"] = loss
        return Evaluation(
            row, {"alphabet": {"letters": LETTERS}}, f"step {position.step}: loss {loss:.3f}"
        )

    def units(self, step: int) -> int:
        return step * BATCH


def _loss(logits: jax.Array, batch: Any) -> jax.Array:
    return -jnp.mean(jax.nn.log_softmax(logits)[batch["letter"], batch["next"]])


def main(folder: str, die_at: str | None = None) -> None:
    parallel = DataParallel(jax.local_devices())
    task = Bigrams(parallel, die_at=None if die_at is None else int(die_at))
    OfflineTrainer(task, CONFIG).run(Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
