"""Memory that ends is told in one line, also where compiled code ends the process for it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from motif_jax.support import memory_limit
from tests.processes import REPOSITORY, descendants, still_there, wait_until, with_memory
from tests.reward_fixtures import command, environment, make_dataset

LIMIT = 1 << 30


def _refused(cause: BaseException) -> BaseException:
    try:
        try:
            raise cause
        except type(cause):
            raise KeyError("a part failed") from None
    except KeyError as error:
        return error


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (MemoryError("Unable to allocate 3 GiB"), "3 GiB"),
        (MemoryError(), "an allocation"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Cannot allocate"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes"), "5 bytes"),
        (ImportError("lib.so: failed to map segment from shared object"), "lib.so"),
    ],
)
def test_what_was_refused_is_found_behind_other_errors(error: BaseException, what: str) -> None:
    assert what in (memory_limit.ran_out(error) or "")
    assert what in (memory_limit.ran_out(_refused(error)) or "")


@pytest.mark.parametrize(
    "error",
    [ValueError("memory"), OSError(errno.ENOSPC, "full"), RuntimeError("other"), ImportError("no module")],
)
def test_other_errors_are_none_of_it(error: BaseException) -> None:
    assert memory_limit.ran_out(_refused(error)) is None


def test_the_line_names_what_can_be_made_smaller() -> None:
    config = ConfigDict({"batch_size": 64, "rollout": 32, "actors": {"workers": 1}, "seed": 7})
    line = memory_limit.told("3 GiB", config)
    assert "make config.batch_size=64 or config.rollout=32 smaller, or give it more" in line
    assert "seed" not in line
    assert "workers" not in line, "one cannot be made less"
    assert "config.num_shards=1 larger, or give" in memory_limit.told("3 GiB", ConfigDict({"num_shards": 1}))


def watched(work: str) -> subprocess.Popen[str]:
    """A program below a limit whose watched part does `work`."""
    code = (
        "import os, signal, sys, time\nfrom motif_jax.support import memory_limit\n"
        f"memory_limit.watch(lambda what: sys.exit(what))\n{work}"
    )
    return subprocess.Popen(
        [*with_memory(LIMIT), sys.executable, "-c", code],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(("mebibytes", "said"), [(320, "216 MiB of addresses for scipy"), (900, "loaded")])
def test_scipy_is_not_loaded_where_its_linear_algebra_would_ask_without_end(
    mebibytes: int, said: str
) -> None:
    code = (
        "import sys; from motif_jax.support import memory_limit; memory_limit.watch(sys.exit)\n"
        "try: import numpy, scipy.special, scipy.linalg; print('loaded')\n"
        "except MemoryError as error: print(memory_limit.ran_out(error))"
    )
    done = subprocess.run(
        [*with_memory(mebibytes << 20), sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "4"},
    )  # fmt: skip
    assert said in done.stdout


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        ("sys.exit(75)", 75, ""),
        ("os.abort()", 1, "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
    ],
)
def test_a_program_below_a_limit_ends_as_its_work_does(work: str, code: int, said: str) -> None:
    program = watched(work)
    _, stderr = program.communicate(timeout=120)
    assert program.returncode == code
    assert said in stderr
    assert bool(stderr) == bool(said)


SLEEP = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\nprint('here', flush=True)\ntime.sleep(600)"


@pytest.mark.parametrize(
    ("hit", "code"),
    [(signal.SIGTERM, 75), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_signals_reach_the_work(hit: signal.Signals, code: int) -> None:
    program = watched(SLEEP)
    assert program.stdout is not None
    assert program.stdout.readline() == "here\n"
    work = descendants(program.pid)
    assert len(work) == 1
    os.kill(program.pid, hit)
    assert program.wait(120) == code
    wait_until(lambda: not still_there(work), "the work ends with the program")
    program.communicate()


def test_without_a_limit_nothing_is_watched() -> None:
    def never(what: str) -> None:
        raise AssertionError(what)

    end: Callable = never
    before = os.getpid()
    memory_limit.watch(end)
    assert os.getpid() == before


def test_a_stage_below_a_limit_is_one_line(tmp_path: Path) -> None:
    """XLA alone has more addresses than this; one thread of the arrays' library, which asks for some for each core."""
    folder = tmp_path / "dataset"
    make_dataset(folder, pairs=40)
    flags = (f"--config.dataset_dir={folder}", "--config.annotator=test")
    done = subprocess.run(
        [*with_memory(1 << 28), *command("train_reward", tmp_path / "run", *flags)],
        cwd=REPOSITORY, env={**environment(), "OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: memory has ended")
    assert "config.batch_size=32" in line
    assert "256 MiB (ulimit -v)" in line


def test_a_limit_that_no_library_fits_below_is_one_line() -> None:
    done = subprocess.run(
        [*with_memory(100 << 20), sys.executable, "-m", "motif_jax.launch", "--help"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: memory for addresses is limited to 100 MiB (ulimit -v)")
