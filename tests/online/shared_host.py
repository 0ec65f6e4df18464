"""One host of two that learn a reward: `python -m tests.online.shared_host INDEX PORT FOLDER STEPS SECONDS`.

Trains by the real stage, and writes for each batch that is learned from the version of its rewards.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from motif_jax.online.learner import Learner
from motif_jax.stages import train_agent
from tests.online.oni_runs import oni_config


def main(index: str, port: str, folder: str, steps: str, seconds: str) -> int | None:
    """Runs the stage; `seconds`: for so long a host may be silent."""
    run, learn = Path(folder) / "run", Learner.step
    versions = open(Path(folder) / f"versions-{index}", "a", buffering=1)  # noqa: SIM115 - open to the end

    def watched(self: Learner, batch: Any) -> None:
        versions.write(f"{self.version} {batch.reward_version}\n")
        learn(self, batch)

    Learner.step = watched  # type: ignore[method-assign]
    changes = {
        "serial": False,
        "batch_size": 96,
        "train_for_env_steps": int(steps),
        "save_every_steps": 500,
        "log_every_seconds": 0.5,
        "compile_cache": f"{folder}/compiled",
        "annotator__store_dir": f"{folder}/store",
        "annotator__lexicon__file": f"{folder}/lexicon.yaml",
        "reward__encoder": "lt_cnn_small",
        "reward__training__batch_size": 8,
        "reward__training__learning_rate": 1e-2,
        "hosts__coordinator": f"localhost:{port}",
        "hosts__index": int(index),
        "hosts__count": 2,
        "hosts__heartbeat_timeout_seconds": float(seconds),
        "devices__cpu_count": 1,
    }
    config = oni_config("classification", **changes)
    train_agent.check(config, run)
    return train_agent.run(config, run)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
