"""Logs of published ILQL evaluations."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.ilql import evaluate_text
from motif_jax.published import results


def write_log(path: Path, rewards: list[float], entropies: list[float]) -> None:
    episodes = [(None, [(None, "a", reward, True)]) for reward in rewards]
    path.write_bytes(pickle.dumps({"eval_dump": {"results": episodes, "entropies": entropies}}))


class _Observation:
    """Stands for a published class."""


STEPS = [(_Observation(), "crane", np.float64(-1.0), False), (_Observation(), "slate", 0.0, True)]


def dump(path: Path, episodes: list[Any], **more: Any) -> None:
    path.write_bytes(pickle.dumps({"eval_dump": {"results": episodes, **more}}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.pkl"


@pytest.mark.parametrize("protocol", [4, pickle.DEFAULT_PROTOCOL])
def test_published_logs_are_read_without_their_classes(path: Path, protocol: int) -> None:
    content = {"results": [(_Observation(), STEPS)] * 3, "entropies": [1.0, 2.0, 3.0]}
    path.write_bytes(pickle.dumps({"all_logs": {}, "eval_dump": content}, protocol=protocol))

    log = results.read_evaluation_log(path)

    assert log.returns.tolist() == [-1.0] * 3
    assert log.in_words() == "3 episodes, return -1.0000 +- 0.0000, entropy 2.0000 +- 0.5774"


def test_entropies_of_an_episode_s_tokens_are_summed(path: Path) -> None:
    dump(path, [(None, STEPS)], entropies=[[1.0, 2.5]])

    words = results.read_evaluation_log(path).in_words()

    assert words == "1 episodes, return -1.0000 +- 0.0000, entropy 3.5000 +- 0.0000"


def test_a_written_log_has_the_published_layout(tmp_path: Path) -> None:
    dialogue = {"texts": ["a", "b", "c", "d"], "rewards": [None, 1.5, None, -0.5]}
    rows = [
        {
            "dialogue": dialogue,
            "return": 1.0,
            "token_return": 3.0,
            "entropy": 0.25,
            "divergence": 0.5,
        },
        {"dialogue": {"texts": ["x"], "rewards": [2]}, "return": 2.0, "token_return": 5.0},
    ]
    evaluate_text.write_published_log(tmp_path / "log.pkl", rows, {"seed": 1})
    steps = [(("a",), "b", 1.5, False), (("a", "b", "c"), "d", -0.5, True)]
    episodes = [(("a", "b", "c", "d"), steps), (("x",), [((), "x", 2.0, True)])]
    logs = {"env_reward": 1.5, "token_reward": 4.0, "kl": 0.25}
    dump = {"results": episodes, "entropies": [0.25, 0.0]}
    content = {"all_logs": logs, "eval_dump": dump, "config": {"seed": 1}}
    assert pickle.loads((tmp_path / "log.pkl").read_bytes()) == content
    assert (
        results.read_evaluation_log(tmp_path / "log.pkl").in_words()
        == "2 episodes, return 1.5000 +- 0.5000, entropy 0.1250 +- 0.1250"
    )
