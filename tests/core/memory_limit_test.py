"""Memory that was refused is one line that names what to make smaller."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from typing import Any

import pytest

from motif_jax.core import memory_limit
from tests.processes import REPOSITORY

NOT_MAPPED = "lib.so: failed to map segment from shared object"
END = "; what was saved before is kept, and with more memory the same command resumes"


def caused_by(cause: Exception) -> Exception:
    """Another error, raised `from None` while `cause` was handled."""
    error = KeyError("a part failed")
    error.__context__ = cause
    error.__suppress_context__ = True
    return error


@pytest.mark.parametrize("wrap", [lambda error: error, caused_by], ids=["itself", "behind another"])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError("Unable to allocate 3 GiB"), "Unable to allocate 3 GiB"),
        (MemoryError(), "an allocation failed"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "[Errno 12] Cannot allocate memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out\n of  memory"), "RESOURCE_EXHAUSTED: Out of memory"),
        (ImportError(NOT_MAPPED), NOT_MAPPED),
    ],
)
def test_a_refused_allocation_is_recognised(error: Exception, message: str, wrap: Any) -> None:
    assert memory_limit.ran_out(wrap(error)) == message


@pytest.mark.parametrize(
    "error",
    [ValueError("memory"), OSError(errno.ENOSPC, "full"), RuntimeError("other"), ImportError("no")],
    ids=repr,
)
def test_other_errors_are_no_refused_allocation(error: Exception) -> None:
    assert memory_limit.ran_out(caused_by(error)) is None


def limit_address_space(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        (
            # One worker cannot be made fewer, and no more than three keys are named.
            {
                "batch_size": 64,
                "rollout": 2,
                "actors.workers": 1,
                "length": 5,
                "lanes": 9,
                "max_len": None,
            },
            "make config.batch_size=64 or config.rollout=2 or config.length=5 smaller, or give it more",
        ),
        ({"seed": 7}, "give it more"),
        (
            {"rollout": 3, "sharding.fsdp": 2, "accumulate": 1},
            "make config.rollout=3 smaller, make config.accumulate=1 larger, or give it more",
        ),
    ],
)
def test_the_line_names_what_can_be_made_smaller(
    values: dict[str, Any], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_address_space(monkeypatch, resource.RLIM_INFINITY)

    assert memory_limit.explained("3 GiB", values) == f"memory has ended (3 GiB): {remedy}{END}"


def test_the_line_names_the_limit_of_the_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_address_space(monkeypatch, 3 << 31)

    line = memory_limit.explained("3 GiB", {})

    assert line == f"memory has ended (3 GiB): give it more than 6,144 MiB (ulimit -v){END}"


def test_a_long_message_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_address_space(monkeypatch, resource.RLIM_INFINITY)

    line = memory_limit.explained("x" * 300, {})

    assert line == f"memory has ended ({'x' * 200}): give it more{END}"


# The launcher with a stage that asks for an exbibyte.
HUNGRY = """
import numpy as np

from motif_jax import launch, stages


class HungryStage:
    NEEDS_WORKDIR = False

    def check(self, config, workdir):
        pass

    def run(self, config, workdir):
        np.empty(1 << 57)


stages.module = lambda name: HungryStage()
launch.main()
"""


@pytest.mark.slow
def test_a_stage_without_memory_ends_with_that_line() -> None:
    flags = ["--config=configs/train_reward.py:smoke", "--config.batch_size=8"]

    process = subprocess.run(
        [sys.executable, "-c", HUNGRY, *flags],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert process.returncode == 2, process.stderr
    (line,) = process.stderr.splitlines()
    assert line.startswith("error: memory has ended (Unable to allocate 1.00 EiB")
    assert "make config.batch_size=8" in line
