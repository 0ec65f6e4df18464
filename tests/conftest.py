"""What all tests share: four CPU devices, the golden numbers, and the --quick option."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Before jax is imported anywhere: tests of data parallelism need several devices on any machine.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")

# Parts of the tests' own, which they make without the command that would name them.
os.environ["MOTIF_JAX_TRUST"] = (
    "tests.toys,tests.toy_text,tests.online.outside_parts,tests.actors.lives_test,tests.gym_toys,"
    "tests.annotation.sources_test,tests.playing.episodes_test,tests.stages.train_text_stopped_test,minigrid,json,nowhere"
)

# What one test, or a process that it starts, has compiled, all others find; it is theirs alone, and nothing stays. The processes
# of xdist are started later, and find the folder in their environment; conftest.py files of folders may import jax.
PROGRAMS = None
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    PROGRAMS = os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="motif-programs-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

GOLDEN = Path(__file__).parent / "golden"
REPOSITORY = Path(__file__).parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """What was compiled goes with the run that made it, and so do the browsers that tests of pages hand on to each other."""
    if PROGRAMS is not None:
        config.add_cleanup(functools.partial(shutil.rmtree, PROGRAMS, ignore_errors=True))
    config.add_cleanup(close_browsers)


def close_browsers() -> None:
    if "tests.browser" in sys.modules:
        sys.modules["tests.browser"].close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_go_with_their_file() -> Iterator[None]:
    """Those of all files together would take 4 GB."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
        from motif_jax.devices import compiled_programs

        # Of processes that a test killed. What another process of the tests writes at this moment is compiled once more.
        compiled_programs.remove_torn(Path(os.environ["JAX_COMPILATION_CACHE_DIR"]))


@pytest.fixture(scope="module")
def compiled_quickly() -> Iterator[None]:
    """For tiny models, which take longer to compile than to run: the compiler's best is left out, and nothing it is told stays."""
    from tests.compiling import quickly

    with quickly():
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small trained reward; its dataset lies beside it. Tests leave both as they found them."""
    from tests.reward_fixtures import make_dataset, reward_config, train

    folder = tmp_path_factory.mktemp("reward")
    make_dataset(folder / "dataset")
    return train(folder / "reward", reward_config(folder / "dataset"))


@functools.cache
def load_golden(name: str) -> Any:
    """The golden file `name`: arrays by name for .npz, the parsed content for .json."""
    path = GOLDEN / name
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    with np.load(path) as file:
        return dict(file)


@pytest.fixture
def golden() -> Any:
    return load_golden


@pytest.fixture
def repository() -> Path:
    return REPOSITORY
