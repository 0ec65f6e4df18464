"""One small trained reward for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reward_fixtures import make_dataset, reward_config, train


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reward")
    make_dataset(folder / "dataset")
    return train(folder / "reward", reward_config(folder / "dataset"))
