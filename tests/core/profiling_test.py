"""Profiles: which steps a trace has, where it is, and that one which never began is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.core.profiling import Profiler
from tests.processes import free_port


class RecordedTrace:
    """In place of jax.profiler: what happens, in order."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def start_server(self, port: int) -> None:
        self.events.append(("start_server", port))

    def start_trace(self, folder: str) -> None:
        self.events.append(("start_trace", folder))

    def stop_trace(self) -> None:
        self.events.append("stop_trace")


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> RecordedTrace:
    trace = RecordedTrace()
    for name in ("start_server", "start_trace", "stop_trace"):
        monkeypatch.setattr(f"jax.profiler.{name}", getattr(trace, name))
    return trace


def profile_ten_steps(folder: Path, trace: RecordedTrace, **options: int) -> None:
    """Steps 70 to 79 of a resumed run."""
    profiler = Profiler(folder, **options)
    for step in range(70, 80):
        trace.events.append(step)
        profiler.step(step)
    profiler.close()


def test_a_profile_has_the_configured_steps(tmp_path: Path, trace: RecordedTrace) -> None:
    profile_ten_steps(tmp_path, trace, start=2, steps=3)

    started = ("start_trace", str(tmp_path / "profile"))
    assert trace.events == [70, 71, 72, started, 73, 74, 75, "stop_trace", 76, 77, 78, 79]


def test_a_profile_has_five_steps_by_default(tmp_path: Path, trace: RecordedTrace) -> None:
    profile_ten_steps(tmp_path, trace, start=0)

    started = ("start_trace", str(tmp_path / "profile"))
    assert trace.events == [70, started, 71, 72, 73, 74, 75, "stop_trace", 76, 77, 78, 79]


def test_a_server_of_profiles_has_the_configured_port(tmp_path: Path, trace: RecordedTrace) -> None:
    port = free_port()
    profile_ten_steps(tmp_path, trace, server_port=port)

    assert trace.events == [("start_server", port), *range(70, 80)]
