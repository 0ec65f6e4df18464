"""Files of the published tools."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.damaged_files.kinds import Readers, lines, put, table

READERS = Readers()

# Files of the published tools.


@READERS.of(
    lambda at: put(at, "log.csv", table(("update", "episodes", "frames"), (0, 2, 10), (1, 4, 20), (2, 5, 30)))
)
def glam_log_that_goes_on(path: Path) -> None:
    from motif_jax.published.glam_log import GlamLog

    GlamLog(path.parent, 4, 20.0, (0.5, 0.01), updates=2).close()


@READERS.of(lambda at: put(at, "clauses.jsonl", lines({"update": 0, "step": 1}, {"update": 1, "step": 2})))
def lines_that_go_on(path: Path) -> None:
    from motif_jax.support.files import append_lines

    append_lines(path, lambda line: json.loads(line)["update"] < 1).close()


@READERS.of(
    lambda at: put(
        at,
        "log.csv",
        table(("update", "frames", "return_mean", "success_rate", "num_frames_mean"), (0, 10, 0.5, 0.5, 30)),
    )
)
def glam_log(path: Path) -> None:
    from motif_jax.published import glam_results

    glam_results.read_curve(path.parent, "success")


def _array(content: Any, name: str = "array.npy") -> Callable[[Path], Path]:
    def make(at: Path) -> Path:
        np.save(at / name, content)
        return at / name

    return make


@READERS.of(_array(np.array([0.5, 1.0])))
def glam_returns(path: Path) -> None:
    from motif_jax.published import glam_results

    glam_results.read_returns(path)


@READERS.of(lambda at: put(at, "distrib.csv", table((0.1, 0.9, 0.3, 0.7), (0.2, 0.8, 0.4, 0.6))))
def glam_distributions(path: Path) -> None:
    from motif_jax.published import glam_probes

    glam_probes.read_distributions(path, 2)


@READERS.of(_array(np.array(["go to", "stop"])))
def published_prompts(path: Path) -> None:
    from motif_jax.published import trajectories

    trajectories.read_array(path)


@READERS.of(lambda at: put(at, "results.pkl", pickle.dumps({"task": {"motif": [([0.0, 1.0], [2.0, 3.0])]}})))
def published_results(path: Path) -> None:
    from motif_jax.published import results

    results.read_published(path)


def _evaluation_log(at: Path) -> Path:
    log = {
        "all_logs": {},
        "eval_dump": {"results": [(("a",), [("a", "b", 1.0, True)])], "entropies": [0.5]},
        "config": {},
    }
    return put(at, "eval_log.pkl", pickle.dumps(log))


@READERS.of(_evaluation_log)
def published_log(path: Path) -> None:
    from motif_jax.published import evaluation_logs

    evaluation_logs.read(path).told()


@READERS.of(
    lambda at: put(
        at, "games.pkl", pickle.dumps({"state_actions": [], "vocab_path": "wordle_official_200.txt"})
    )
)
def published_games(path: Path) -> None:
    from motif_jax.published import wordle_games

    wordle_games.read_games(path)


def _checkpoint(at: Path) -> Path:
    from tests import torch_files

    content = {"model": {"a.weight": torch_files.tensor(np.ones((2, 3), np.float32))}, "num_iter": 7}
    return torch_files.write(at / "checkpoint.pth", content)


@READERS.of(_checkpoint)
def torch_checkpoint(path: Path) -> None:
    from motif_jax.published import torch_file

    list(torch_file.tensors(torch_file.read_checkpoint(path)))


def _ilql(at: Path) -> Path:
    from tests import torch_files
    from tests.stages.import_ilql_test import ilql

    return torch_files.write(
        at / "model.pkl", {name: torch_files.tensor(array) for name, array in ilql().items()}
    )


@READERS.of(_ilql)
def ilql_checkpoint(path: Path) -> None:
    from motif_jax.published import ilql_checkpoint

    ilql_checkpoint.read(path, heads=2)


@READERS.of(
    lambda at: put(
        at,
        "quantiles.csv",
        table([f"{0.05 * n:.2f}" for n in range(1, 20)], [f"{0.1 * n:.2f}" for n in range(1, 20)]),
    )
)
def published_quantiles(path: Path) -> None:
    from motif_jax.published import torch_import

    torch_import.read_quantiles(path, -1)
