"""train_text with low-rank additions learns the delimiters that it adds to a model, and nothing
else of the tables.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from motif_jax.core.training.trainer import OfflineTrainer
from motif_jax.ilql.agent import agent_folder
from motif_jax.lm import folder as folders
from tests.ilql import chat_dialogues
from tests.ilql.train_text_test import same_bits
from tests.reward_fixtures import load_config, run_config, run_stage

pytestmark = pytest.mark.slow

CHANGES = {
    "max_steps": 4,
    "optimizer.learning_rate": 1e-2,
    "save_every_seconds": 0.0,
    "turns": "new",
    "lora.patterns": "*/attention/query",
    "lora.rank": 2,
}


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """A config of behaviour cloning on a made-up chat model, whose delimiters are new tokens."""
    return {**chat_dialogues.write(tmp_path_factory.mktemp("inputs")), **CHANGES}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, values: Mapping[str, Any]) -> Path:
    return run_config(load_config("train_text", "bc", dict(values)), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def frozen_run_of(
    tmp_path_factory: pytest.TempPathFactory, values: Mapping[str, Any]
) -> Callable[[str], Path]:
    """A run whose new rows stay where they begin, by the config's value of `network.new_rows`."""

    @functools.cache
    def trained(new_rows: str) -> Path:
        still = {"lora.new_tokens": False, "max_steps": 2, "network.new_rows": new_rows}
        config = load_config("train_text", "bc", {**values, **still})
        return run_config(config, tmp_path_factory.mktemp("frozen"))

    return trained


def tables_of(params: Any) -> list[np.ndarray]:
    return [np.asarray(params["embedding"]), np.asarray(params["head"]["kernel"]).T]


@pytest.mark.extra
def test_rows_of_new_tokens_learn_and_old_rows_stay(
    values: Mapping[str, Any], run: Path, frozen_run_of: Callable[[str], Path]
) -> None:
    base = tables_of(folders.read(values["network.checkpoint"]).params)

    trunk = agent_folder.load(run).params["trunks"]["policy"]
    frozen = agent_folder.load(frozen_run_of("end_of_text")).params["trunks"]["policy"]

    for learned, begun, old in zip(tables_of(trunk), tables_of(frozen), base, strict=True):
        count = len(old)
        np.testing.assert_array_equal(learned[:count], old)
        np.testing.assert_array_equal(begun[:count], old)
    # Every delimiter but padding, which no dialogue reads, is said or read.
    moved = np.abs(tables_of(trunk)[1] - tables_of(frozen)[1]).max(axis=1)
    assert (moved[len(base[1]) :] > 1e-3).all()


@pytest.mark.extra
def test_a_killed_run_ends_with_the_same_rows(
    values: Mapping[str, Any], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config("train_text", "bc", dict(values))
    train_chunk = OfflineTrainer.train_chunk
    chunks: list[int] = []

    def killed(self: OfflineTrainer, *arguments: Any) -> Any:
        chunks.append(1)
        if len(chunks) == 2:
            raise KeyboardInterrupt
        return train_chunk(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(OfflineTrainer, "train_chunk", killed)
        with pytest.raises(KeyboardInterrupt):
            run_config(config, tmp_path / "killed")
    run_config(config, tmp_path / "killed")

    assert same_bits(run, tmp_path / "killed")


@pytest.mark.extra
@pytest.mark.parametrize("new_rows", ["end_of_text", "mean"])
def test_new_rows_begin_where_the_config_says(
    values: Mapping[str, Any], frozen_run_of: Callable[[str], Path], new_rows: str
) -> None:
    folder = values["network.checkpoint"]

    trunk = agent_folder.load(frozen_run_of(new_rows)).params["trunks"]["policy"]

    end = folders.read(folder).config.end_ids[0]
    for rows, table in zip(tables_of(trunk), tables_of(folders.read(folder).params), strict=True):
        begin = table[end] if new_rows == "end_of_text" else table.mean(axis=0)
        # Noise of a tenth of the spread seldom reaches half of it.
        np.testing.assert_allclose(
            rows[len(table) :], np.tile(begin, (5, 1)), atol=0.5 * table.std()
        )


@pytest.mark.extra
def test_exported_tables_have_the_learned_rows(run: Path, tmp_path: Path) -> None:
    model = run_stage("export", tmp_path, "text_agent", agent=str(run)) / "model"

    trunk = agent_folder.load(run).params["trunks"]["policy"]
    for exported, learned in zip(
        tables_of(folders.read(model).params), tables_of(trunk), strict=True
    ):
        np.testing.assert_array_equal(exported, learned)


@pytest.mark.extra
def test_values_are_exported_as_additions_to_the_policy(
    values: Mapping[str, Any], tmp_path: Path
) -> None:
    """Whole trunks and heads of a model of 135 million numbers are a file of 2 GB."""
    run = run_config(load_config("train_text", "ilql", dict(values)), tmp_path / "run")
    agent = agent_folder.load(run)

    model = run_stage("export", tmp_path / "export", "text_agent", agent=str(run)) / "model"

    tensors = load_file(model / "values.safetensors")
    assert not [name for name in tensors if name.startswith("trunks.")]
    policy = agent.params["trunks"]["policy"]
    for name in ("values", "target"):
        # A new delimiter's row, and a layer that learned.
        rows = tensors[f"additions.{name}.new_tokens.embedding"]
        trunk = agent.params["trunks"][name]
        np.testing.assert_allclose(
            policy["embedding"][-len(rows) :] + rows, trunk["embedding"][-len(rows) :], atol=1e-6
        )
        path = f"additions.{name}.decoder/block_0/attention/query"
        kernels = [
            tree["decoder"]["block_0"]["attention"]["query"]["kernel"] for tree in (policy, trunk)
        ]
        whole = kernels[0] + tensors[f"{path}.a"] @ tensors[f"{path}.b"]
        np.testing.assert_allclose(whole, kernels[1], atol=1e-6)
        assert np.abs(kernels[1] - kernels[0]).max() > 1e-4
    b = tensors["heads.q1.output.b"]
    assert b.shape == (2, len(policy["embedding"]))
    assert np.abs(b).max() > 0
