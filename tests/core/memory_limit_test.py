"""Memory that was refused is one line that names what to make smaller."""

from __future__ import annotations

import errno
import os
import resource
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax import launch
from motif_jax.core import memory_limit, tempdirs


def _refused(cause: BaseException) -> BaseException:
    try:
        try:
            raise cause
        except type(cause):
            raise KeyError("a part failed") from None
    except KeyError as error:
        return error


def test_a_refused_allocation_is_recognised_behind_other_errors() -> None:
    unmapped = "failed to map segment from shared object"
    for error, line in (
        (MemoryError("Unable to allocate 3 GiB"), "Unable to allocate 3 GiB"),
        (MemoryError(), "an allocation failed"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "[Errno 12] Cannot allocate memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out\n of  memory"), "RESOURCE_EXHAUSTED: Out of memory"),
        (ImportError(f"lib.so: {unmapped}"), f"lib.so: {unmapped}"),
    ):
        assert [memory_limit.ran_out(raised) for raised in (error, _refused(error))] == [line, line]


def test_other_errors_are_none_of_it() -> None:
    errors = ValueError("memory"), OSError(errno.ENOSPC, "full"), RuntimeError("other"), ImportError("no")
    assert [memory_limit.ran_out(_refused(error)) for error in errors] == [None] * 4


def test_the_line_names_what_can_be_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker cannot be made less."""
    end = "; what was saved before is kept, and with more memory the same command resumes"
    large = {
        "batch_size": 64,
        "rollout": 2,
        "actors.workers": 1,
        "seed": 7,
        "length": 5,
        "lanes": 9,
        "max_len": None,
    }
    smaller = "make config.batch_size=64 or config.rollout=2 or config.length=5 smaller"
    divided = {"sharding.fsdp": 2, "accumulate": 1}
    for bound, more in ((resource.RLIM_INFINITY, "more"), (3 << 31, "more than 6,144 MiB (ulimit -v)")):
        monkeypatch.setattr(resource, "getrlimit", lambda _, bound=bound: (bound, resource.RLIM_INFINITY))
        advice = {f"{smaller}, or give it {more}": large, f"give it {more}": {"seed": 7}}
        larger = f"make config.rollout=3 smaller, make config.accumulate=1 larger, or give it {more}"
        for ways, values in {**advice, larger: {"rollout": 3, **divided}}.items():
            line = memory_limit.explained("3 GiB" + " " * 300, values)
            assert line == f"memory has ended (3 GiB{' ' * 195}): {ways}{end}"


def test_a_stage_without_memory_ends_with_that_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stage = SimpleNamespace(check=lambda *_: None, run=lambda *_: np.empty(1 << 57), NEEDS_WORKDIR=False)
    monkeypatch.setitem(sys.modules, "motif_jax.reports.report", stage)
    monkeypatch.setattr(launch, "_CONFIG", SimpleNamespace(value=ConfigDict({"stage": "report", "batch": 8})))
    for flag in ("_PRINT_CONFIG", "_WORKDIR"):
        monkeypatch.setattr(launch, flag, SimpleNamespace(value=None))
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(tempdirs, "remove_abandoned", lambda: None)
    with pytest.raises(SystemExit) as ended:
        launch._main([])
    assert ended.value.code == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: memory has ended (Unable to allocate 1.00 EiB")
    assert "make config.batch=8 smaller" in line
