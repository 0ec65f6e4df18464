"""What all tests share: four CPU devices, the golden numbers, and the three sets: --quick, the
default, --all.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.compiling import compile_quickly, compiler_knows

# Before jax is imported anywhere: tests of data parallelism need several devices on any machine.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")
if os.environ["JAX_PLATFORMS"] == "cpu":
    compile_quickly()
else:
    # Of an accelerator: all processes of the tests share its memory, and by default it rounds
    # factors of products.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
# Of two collectives that are ready at once each device may begin with another, and then all wait
# for each other.
IN_ORDER = "xla_cpu_enable_concurrency_optimized_scheduler"
XLA_FLAGS = os.environ.get("XLA_FLAGS", "")
if IN_ORDER not in XLA_FLAGS and compiler_knows(IN_ORDER):  # workers of xdist inherit it
    os.environ["XLA_FLAGS"] = f"{XLA_FLAGS} --{IN_ORDER}=false".strip()

# Parts of the tests' own, which they make without the command that would name them.
os.environ["MOTIF_JAX_TRUST"] = (
    "tests.toys,tests.toy_text,tests.rl.outside_parts,tests.rl.actors.lives_test,tests.gym_toys,tests.envs.determinism_test,"
    "tests.oni.label_service_test,tests.play.episodes_test,tests.ilql.train_text_stopped_test,minigrid,json,nowhere"
)

# What a test or its processes compile is kept between runs. A folder above 2 GB is started again.
# The workers of xdist start later and inherit the variables; conftest.py files of folders may
# import jax.
PROGRAMS = Path(__file__).parent.parent / ".cache" / "compiled"
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    if sum(file.stat().st_size for file in PROGRAMS.glob("*")) > 2e9:
        shutil.rmtree(PROGRAMS, ignore_errors=True)
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(PROGRAMS)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
CLEAR_ABOVE_BYTES = 2.5e9

# Formulas, networks and golden numbers, each of which needs one device: what is run on a GPU
# (--numeric).
NUMERIC = {
    "rl/algorithms/appo_golden_test.py",
    "lm/candidate_scores_test.py",
    "oni/classification_loss_test.py",
    "rl/algorithms/golden_reward_test.py",
    "ilql/losses_golden_test.py",
    "ilql/losses_test.py",
    "rl/algorithms/losses_test.py",
    "rl/algorithms/ppo_test.py",
    "motif/reward/preference_test.py",
    "motif/reward/statistics_test.py",
    "rl/algorithms/total_reward_test.py",
    "ilql/agent/decoding_test.py",
    "lm/references_test.py",
    "nets/agent_test.py",
    "nets/convolution_test.py",
    "nets/film_test.py",
    "nets/layers_test.py",
    "nets/reward_test.py",
    "nets/tiles_test.py",
    "ilql/objective_test.py",
}

HAS_TORCH = importlib.util.find_spec("torch") is not None
NO_TORCH = (
    "no PyTorch: launch/test.sh --all runs it in .venv-examples, or pip install -e '.[torch]'"
)

GOLDEN = Path(__file__).parent / "golden"
REPOSITORY = Path(__file__).parent.parent


def pytest_configure(config: pytest.Config) -> None:
    config.add_cleanup(close_browsers)
    from tests.budget import Budget

    config.pluginmanager.register(Budget(config))


def pytest_collection_finish() -> None:
    """Leaves what was imported and collected out of Python's search for garbage, which takes up to
    a tenth of the time else.

    Tracing makes many objects that live on, and each search looks at all of them: by Python's own
    limits a twentieth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 50)


def close_browsers() -> None:
    if "tests.browser" in sys.modules:
        sys.modules["tests.browser"].close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="only tests marked neither slow nor extra"
    )
    parser.addoption(
        "--numeric",
        action="store_true",
        help="only formulas, networks and golden numbers, as on a GPU",
    )
    parser.addoption("--all", action="store_true", help="the tests marked extra, too")
    parser.addoption(
        "--budget", action="store_true", help="fail where a test exceeds its set's processor time"
    )
    parser.addoption(
        "--times", metavar="FILE", help="write each test's processor seconds to this file"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of other sets alone are not imported: what takes longest with a test that is left
    out.
    """
    if config.getoption("--numeric") and collection_path.name.endswith("_test.py"):
        return None if str(collection_path.relative_to(Path(__file__).parent)) in NUMERIC else True
    if not config.getoption("--quick") or not collection_path.name.endswith("_test.py"):
        return None
    marked = re.compile(r"^pytestmark = .*(slow|extra)", re.MULTILINE)
    alone = "end_to_end" in collection_path.parts or marked.search(
        collection_path.read_text(encoding="utf-8")
    )
    return True if alone else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # Each of them starts a stage, reads what one has left, or opens a browser.
        is_of_a_stage = "end_to_end" in item.path.parts or "trained" in item.fixturenames
        if is_of_a_stage or item.get_closest_marker("browser"):
            item.add_marker("slow")
        if item.get_closest_marker("torch") and not HAS_TORCH:
            item.add_marker(pytest.mark.skip(reason=NO_TORCH))
    if config.getoption("--all") or config.option.markexpr:
        return
    left_out = ("slow", "extra") if config.getoption("--quick") else ("extra",)
    chosen = [item for item in items if not any(item.get_closest_marker(name) for name in left_out)]
    selected = set(chosen)
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in selected])
        items[:] = chosen


@pytest.fixture(autouse=True, scope="module")
def clear_compiled_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Clears jax's caches between files only where the worker has grown: programs are shared, but
    all of them take 4 GB.
    """
    yield
    if "jax" in sys.modules:
        if psutil.Process().memory_info().rss > CLEAR_ABOVE_BYTES:
            sys.modules["jax"].clear_caches()
        if request.config.getoption("--quick"):
            return
        from motif_jax.core.devices import compiled_programs

        # Of processes that a test killed. What another process of the tests writes at this moment
        # is compiled once more.
        compiled_programs.remove_torn(Path(os.environ["JAX_COMPILATION_CACHE_DIR"]))


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
